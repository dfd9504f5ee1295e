-- What is stored, and what is marked IMMUTABLE, does not depend on the client's encoding or on
-- any other setting of the session.

\set VERBOSITY terse
SET client_encoding = utf8;

CREATE TABLE enc (U&"gr\00f6\00dfe" float8, U&"\957f\5ea6" float8);
INSERT INTO enc SELECT i % 5, i % 7 / 3.0 FROM generate_series(1, 100) i;
CREATE TABLE enc_kept (what text, m kmeans_model, s kmeans_state, m_text text, s_text text);

-- the second column's name has no latin1 form
INSERT INTO enc_kept (what, m) SELECT 'latin', kmeans_fit('enc', ARRAY[U&'gr\00f6\00dfe'], 2);
INSERT INTO enc_kept (what, m) SELECT 'both', kmeans_fit('enc', ARRAY[U&'gr\00f6\00dfe', U&'\957f\5ea6'], 3);
UPDATE enc_kept SET s = kmeans_step('enc', (kmeans_info(m)).columns, m);
UPDATE enc_kept SET m_text = m::text, s_text = s::text;

CREATE FUNCTION digest() RETURNS text LANGUAGE sql AS $$
    SELECT md5(string_agg(concat_ws(' ', m::text, s::text, kmeans_info(m)::text, kmeans_finish(s)::text, kmeans_svg(m, 'enc'),
        (SELECT string_agg(c::text, ' ') FROM kmeans_centroids(m) c)), ' ' ORDER BY what))
    FROM (SELECT what, m, s FROM enc_kept) o
$$;
CREATE TABLE enc_digest AS SELECT digest();

-- the texts under other encodings; they are read back and are the same values
CREATE FUNCTION same() RETURNS TABLE (what text, model bool, state bool, model_back bool, state_back bool) LANGUAGE sql AS $$
    SELECT what, m::text = m_text, s::text = s_text, m_text::kmeans_model::text = m_text, s_text::kmeans_state::text = s_text
    FROM enc_kept ORDER BY what
$$;
SELECT * FROM same();
SET client_encoding = latin1;
SELECT * FROM same();
SELECT digest() = (SELECT digest FROM enc_digest) AS same;
SET client_encoding = sjis;
SELECT * FROM same();
SELECT digest() = (SELECT digest FROM enc_digest) AS same;
SET client_encoding = sql_ascii;
SELECT * FROM same();
SET client_encoding = utf8;

-- the binary form has names in the client's encoding, as that of text; it says so
SELECT kmeans_state_send(s) = decode(substr(s::text, 3), 'hex') AS utf8 FROM enc_kept ORDER BY what;
SET client_encoding = latin1;
SELECT what, octet_length(kmeans_state_send(s)) < length(s::text) / 2 - 1 AS shorter FROM enc_kept WHERE what = 'latin';
SELECT kmeans_state_send(s) IS NULL FROM enc_kept WHERE what = 'both';
SET client_encoding = utf8;
SELECT p.oid::regprocedure, provolatile FROM pg_proc p WHERE proname ~ '^kmeans_(model|state)_(send|recv)$' ORDER BY proname COLLATE "C";

-- text that was made by a client of another encoding is not what it says
SELECT replace(s_text, '6772c3b6c39f65', '6772f6df656565')::kmeans_state IS NULL FROM enc_kept WHERE what = 'latin';
SELECT replace(s_text, '6772c3b6c39f65', '67720066666665')::kmeans_state IS NULL FROM enc_kept WHERE what = 'latin';

-- other settings that change how values look
SET extra_float_digits = -15;
SET DateStyle = 'German, DMY';
SET IntervalStyle = 'sql_standard';
SET TimeZone = 'Asia/Kathmandu';
SET bytea_output = 'escape';
SET quote_all_identifiers = on;
SET standard_conforming_strings = off;
SET escape_string_warning = off;
SET array_nulls = off;
SELECT model, state, model_back, state_back FROM same();
SELECT digest() = (SELECT digest FROM enc_digest) AS same;
RESET extra_float_digits; RESET DateStyle; RESET IntervalStyle; RESET TimeZone; RESET bytea_output;
RESET quote_all_identifiers; RESET standard_conforming_strings; RESET escape_string_warning; RESET array_nulls;

DROP FUNCTION same, digest;
DROP TABLE enc, enc_kept, enc_digest;
