"""Mutated models, states, passes, options and settings, through SQL.

A case is a batch of mutated texts or bytes for one way into the server. A DO block tries them one by
one behind an exception handler, so a batch is one statement, and returns the SQLSTATEs it has met: only
errors that tell what is wrong with a value may be among them. What is accepted has to read back from
its text and its binary form, and goes through all functions that take it.
"""
import struct

from fuzz_common import Campaign, literal

BATCH = 250
GOOD_CLASSES = ("22", "0A", "54", "23502", "42804", "42P18", "57014", "53000", "53200", "55000", "42883", "42703", "42809")

SETUP = """
CREATE EXTENSION IF NOT EXISTS gkmeans;
CREATE TABLE t (id int, x float8, y float8, a float8[], w float8);
INSERT INTO t SELECT i, i % 7 - 1.5, i % 5 * 2, ARRAY[i % 4, i % 3 - 1, 0.5], i % 3 FROM generate_series(1, 40) i;
CREATE TABLE inputs (i int, s text, b bytea);
CREATE TABLE model_values (m kmeans_model);
CREATE TABLE state_values (s kmeans_state);

-- Everything that takes a model; an error in one of them does not keep the others from running
CREATE FUNCTION attempt(command text, m kmeans_model, s kmeans_state, OUT state text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE command USING m, s;
    state := '00000';
EXCEPTION WHEN OTHERS THEN
    state := sqlstate || ' ' || left(sqlerrm, 200);
END $$;
"""

MODEL_USES = [
    "SELECT kmeans_predict($1, x, y), kmeans_distance($1, x, y), kmeans_transform($1, x, y) FROM t LIMIT 3",
    "SELECT kmeans_predict($1, a), kmeans_distance($1, a), kmeans_transform($1, a) FROM t LIMIT 3",
    "SELECT kmeans_predict($1, x) FROM t LIMIT 3",
    "SELECT * FROM kmeans_centroids($1)",
    "SELECT * FROM kmeans_info($1)",
    "SELECT kmeans_step($1, x, y), kmeans_step($1, ARRAY[x, y], w) FROM t",
    "SELECT kmeans_step($1, a) FROM t",
    "SELECT kmeans_state_combine(kmeans_step_partial($1, a), kmeans_step_partial($1, a))::text::kmeans_state FROM t",
    "SELECT kmeans_step('t', '{x,y}', $1)",
    "SELECT kmeans_step('t', '{a}', $1, weight_column => 'w')",
    "SELECT * FROM kmeans_evaluate($1, 't')",
    "SELECT * FROM kmeans_labels('t', $1)",
    "SELECT kmeans_svg($1, 't')",
    "SELECT * FROM kmeans_spectral_scan($1)",
    "SELECT kmeans_spectral_svg($1)",
    "SELECT kmeans_fit('t', '{x,y}', (SELECT k FROM kmeans_info($1)), warm_start => $1, "
    "distance => (SELECT distance FROM kmeans_info($1)))",
    "SELECT kmeans_agg(a, (SELECT k FROM kmeans_info($1)), kmeans_options(warm_start => $1)) FROM t",
    "SELECT $1::text::jsonb::text::kmeans_model",
]
STATE_USES = [
    "SELECT kmeans_finish($2)",
    "SELECT feature_sum_finish($2)",
    "SELECT kmeans_state_combine($2, $2), kmeans_state_combine($2, NULL), kmeans_state_combine(NULL, $2)",
    "SELECT kmeans_finish(kmeans_state_combine($2, $2))",
    "SELECT kmeans_combine(s) FROM (VALUES ($2), ($2), (NULL)) v(s)",
    "SELECT kmeans_state_normal(kmeans_state_combine($2, $2))::text::kmeans_state",
]

# Each input through this function; what it returns must be '', and uses run where the type has any
TRY = """
DO $do$
DECLARE
    input record; m kmeans_model; s kmeans_state; again text; command text; met text[] := '{{}}';
BEGIN
    FOR input IN SELECT * FROM inputs ORDER BY i LOOP
        BEGIN
            {read}
            IF {wrong} THEN
                met := met || format('XX000 %s: reads back otherwise', input.i);
            END IF;
            met := met || '00000'::text;
        EXCEPTION WHEN OTHERS THEN
            met := met || format('%s %s: %s', sqlstate, input.i, left(sqlerrm, 100));
            CONTINUE;
        END;
        {uses}
    END LOOP;
    PERFORM set_config('fuzz.met', array_to_string(ARRAY(
        SELECT count(*) || ' ' || min(e) FROM unnest(met) e GROUP BY left(e, 5)), E'\\n'), false);
END $do$
"""
USE = """FOREACH command IN ARRAY commands LOOP
            met := met || attempt(command, m, s);
        END LOOP;"""

WORDS = ("0 -1 1 2147483648 9223372036854775808 1e308 1e309 5e-324 NaN null true [] {} \"\" \\u0000 \\ud800 ä "
         "cosine k-means|| 1099511627777 16384 1000000 -200 200").split(" ")
NUMBERS = (0, 1, 2, 255, 16384, 1000000, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1, 2 ** 40, 2 ** 40 + 1, 2 ** 63 - 1, 2 ** 63,
           0x7ff0000000000000, 0x7ff8000000000000, 0x7f800000, 0x0010000000000000)


def mutate_bytes(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        if not data:
            break
        at, how = rng.randrange(len(data)), rng.randrange(6)
        if how == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            data[at] = rng.randrange(256)
        elif how in (2, 3):
            width = rng.choice((1, 2, 4, 8))
            number = rng.choice(NUMBERS) + rng.randrange(-1, 2)
            at -= at % min(width, 4)
            data[at:at + width] = (number & (256 ** width - 1)).to_bytes(width, "big")
        elif how == 4:
            del data[at:at + rng.randrange(1, 17)]
        else:
            data[at:at] = data[rng.randrange(len(data)):][:rng.randrange(1, 17)]
    return bytes(data)


def mutate_text(rng, text):
    for _ in range(rng.choice((1, 1, 2, 4))):
        if not text:
            break
        at, how = rng.randrange(len(text)), rng.randrange(5)
        end = at
        if how in (0, 1):
            while at < len(text) and text[at] not in "0123456789-":
                at += 1
            end = at
            while end < len(text) and text[end] in "0123456789-+.eE":
                end += 1
        elif how == 2:
            end = at + rng.randrange(1, 17)
        insert = rng.choice(WORDS) if how in (0, 1, 3) else "" if how == 2 else chr(rng.choice((9, 34, 39, 65, 92, 228, 0x20ac)))
        text = text[:at] + insert + text[end:]
    return text.replace("\0", "")


def question(kind, d, centroids=0, seeds=0, use_d2=0, want=0):
    head = b"kmp1" + struct.pack(">6i", 2, kind, d, 0, 0, 0)
    if kind == 1:
        return head
    head += struct.pack(">4i", 0, 10, 8, 0) + struct.pack(">ddi", 0.5, 1.0, 3) * d
    for n in (centroids, seeds):
        head += struct.pack(">i", n) + b"".join(struct.pack(">f", i / 2) for i in range(n * d))
    return head + struct.pack(">qii", 42, use_d2, want)


QUESTIONS = [question(1, 0), question(2, 3), question(3, 3, 2), question(4, 3, 2), question(5, 3, 0, 1, 1, 3),
             question(5, 3, 2, 1, 1, 2), question(6, 3, 0, 2)]


class Ways:
    """The ways into the server: mutated input and the SQL that reads it."""

    def __init__(self, session):
        fits = ["kmeans_fit('t', '{x,y}', 3)", "kmeans_fit('t', '{a}', 2, weight_column => 'w', distance => 'cosine', nonfinite => 'skip')",
                "kmeans_fit('t', '{x}', 2, standardize => true)", "kmeans_spectral_fit('t', '{x,y}', 2, 8, neighbors => 2)",
                "kmeans_fit('t', '{x,y}', 3, nulls => 'mean')"]
        sums = ["(SELECT feature_sum_partial(ARRAY[x, y * 1e200]) FROM t)"] + [
            f"(SELECT kmeans_step_partial((SELECT {f}), {p}) FROM t WHERE a[1] > 0)" for f, p in zip(fits[:3], ("x, y", "a", "x"))]
        get = lambda query: session.run(f"SELECT {query}", remember=False).value
        self.settings_names = sorted(r[0] for r in session.run(
            "SELECT name FROM pg_settings WHERE name LIKE 'gkmeans.%'", remember=False).rows)
        self.models = [(get(f"{f}::text"), bytes.fromhex(get(f"kmeans_model_send({f})")[2:])) for f in fits]
        self.states = [(get(f"{s}::text"), bytes.fromhex(get(f"kmeans_state_send({s})")[2:])) for s in sums]

    def model_text(self, rng):
        return [(mutate_text(rng, rng.choice(self.models)[0]), None) for _ in range(BATCH)], (
            "m := input.s::kmeans_model;", "kmeans_model_send(m::text::kmeans_model) <> kmeans_model_send(m)", MODEL_USES)

    def model_jsonb(self, rng):
        return [(mutate_text(rng, rng.choice(self.models)[0]), None) for _ in range(BATCH)], (
            "m := input.s::jsonb::text::kmeans_model;", "false", MODEL_USES)

    def state_text(self, rng):
        return [("\\x" + mutate_bytes(rng, rng.choice(self.states)[1]).hex() if rng.random() < 0.9 else
                 mutate_text(rng, rng.choice(self.states)[0]), None) for _ in range(BATCH)], (
            "s := input.s::kmeans_state;", "kmeans_state_send(s::text::kmeans_state) <> kmeans_state_send(s)", STATE_USES)

    def passes(self, rng):
        return [(None, mutate_bytes(rng, rng.choice(QUESTIONS))) for _ in range(BATCH)], (
            "again := length(kmeans_pass('{t}', '{a}', input.b, weight_column => nullif('w', left('w', input.i % 2))));", "false", [])

    def options(self, rng):
        words = ["k-means++", "k-means||", "random", "euclidean", "cosine", "error", "skip", "mean", "cpu", "auto"] + WORDS
        word = lambda: rng.choice(words) if rng.random() < 0.7 else mutate_text(rng, rng.choice(words))
        inputs = []
        for _ in range(BATCH // 5):
            arguments = {"init": literal(word()), "n_init": str(rng.choice((0, 1, 2, -1))), "max_iter": str(rng.choice((0, 1, 5))),
                         "tol": f"'{rng.choice(('0', '-1', 'NaN', 'Infinity', '1e-300', '1e300'))}'::float8",
                         "distance": literal(word()), "standardize": rng.choice(("true", "false", "NULL")),
                         "seed": rng.choice(("NULL", "-1", "9223372036854775807")), "nonfinite": literal(word()), "nulls": literal(word()),
                         "device": literal(rng.choice(("cpu", word()))),
                         "centroids": literal(rng.choice(("{{0,0,0},{1,1,1}}", "{}", "{1,2}", "{{NaN,1,1},{2,2,2}}", "{{1,NULL,1},{1,1,1}}")))}
            chosen = ", ".join(f"{n} => {arguments[n]}" for n in rng.sample(list(arguments), rng.randrange(1, 4)))
            inputs.append((rng.choice((f"SELECT kmeans_fit('t', '{{a}}', 2, {chosen})",
                                       f"SELECT kmeans_agg(a, 2, kmeans_options({chosen})) FROM t")), None))
        return inputs, ("EXECUTE input.s;", "false", [])

    def settings(self, rng):
        values = ["0", "-1", "1", "2", "1000", "2147483647", "2147483648", "1kB", "1TB", "64kB", "auto", "scan", "executor", "scalar",
                  "avx2", "on", "off", "", "ä" * 40, "cpu", "0,1", "a" * 300]
        inputs = []
        for _ in range(BATCH // 5):
            value = rng.choice(values) if rng.random() < 0.8 else mutate_text(rng, rng.choice(values))
            inputs.append((f"SELECT set_config('{rng.choice(self.settings_names)}', {literal(value)}, true), "
                           f"(SELECT sum(size) FROM kmeans('t', '{{x,y}}', 2))", None))
        return inputs, ("EXECUTE input.s;", "false", [])


def copy_binary(campaign, session, rng, ways):
    """The receive functions, by COPY BINARY: the only way that takes them from SQL. One value per statement."""
    for _ in range(BATCH // 5):
        table, values = rng.choice((("model_values", ways.models), ("state_values", ways.states)))
        data = mutate_bytes(rng, rng.choice(values)[1])
        head = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
        session.script[:] = [f"-- COPY {table} FROM stdin (FORMAT binary), one field of these bytes:\n-- {data.hex()}"]
        session.db.pgconn.exec_(f"COPY {table} FROM stdin (FORMAT binary)".encode())
        session.db.pgconn.put_copy_data(head + struct.pack(">hi", 1, len(data)) + data + b"\xff\xff")
        session.db.pgconn.put_copy_end()
        outcome = session._outcome(session.db.pgconn.get_result())
        while session.db.pgconn.get_result() is not None:
            pass
        if not judge(campaign, session, f"1 {outcome.state or '00000'} {outcome.message}"):
            return
    for name, uses in (("model_values", MODEL_USES), ("state_values", STATE_USES)):
        m, s = ("v.m", "NULL") if name[0] == "m" else ("NULL", "v.s")
        session.script.clear()
        outcome = session.run(f"SELECT string_agg(DISTINCT '1 ' || attempt(c, {m}, {s}), E'\\n') FROM {name} v, "
                              f"unnest(ARRAY[{', '.join(literal(u) for u in uses)}]) c")
        if campaign.sane(outcome, session) and outcome.value:
            judge(campaign, session, outcome.value)
        session.run(f"TRUNCATE {name}", remember=False)


def judge(campaign, session, met):
    """Lines of 'count SQLSTATE ...': all have to be errors that a user may see."""
    good = True
    for line in met.split("\n"):
        count, state = line.split(" ")[:2]
        if state == "00000" or any(state.startswith(c) for c in GOOD_CLASSES):
            campaign.count(int(count))
        else:
            good = False
            campaign.fail(line, session)
    return good


campaign = Campaign("bytes")
session = campaign.session()
assert session.run(SETUP).ok
ways = Ways(session)
kinds = [ways.model_text, ways.model_jsonb, ways.state_text, ways.passes, ways.options, ways.settings, None]
for rng in campaign.cases():
    if session.lost:
        session = campaign.session()
    session.script.clear()
    session.run(f"RESET ALL; SET gkmeans.threads = {rng.choice((1, 2))}; SET gkmeans.simd = {rng.choice(('auto', 'scalar', 'avx2'))}; "
                "SET statement_timeout = '60s'; SET client_min_messages = error")
    kind = rng.choice(kinds)
    if kind is None:
        copy_binary(campaign, session, rng, ways)
        continue
    inputs, (read, wrong, uses) = kind(rng)
    session.run("TRUNCATE inputs; INSERT INTO inputs VALUES " + ",\n".join(
        f"({i}, {literal(s)}, {'NULL' if b is None else literal(chr(92) + 'x' + b.hex())})" for i, (s, b) in enumerate(inputs)))
    do = TRY.format(read=read, wrong=wrong, uses=USE if uses else "")
    if uses:
        do = do.replace("met text[]", "commands text[] := ARRAY[" + ", ".join(literal(u) for u in uses) + "]; met text[]")
    outcome = session.run(do)
    if campaign.sane(outcome, session) and campaign.check(outcome.ok, f"{kind.__name__}: {outcome}", session):
        judge(campaign, session, session.run("SELECT current_setting('fuzz.met')", remember=False).value)
campaign.finish()
