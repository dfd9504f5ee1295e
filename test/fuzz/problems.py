"""Random SQL problems against numpy. (So far: that the frame stands.)"""
from fuzz_common import Campaign

campaign = Campaign("problems")
session = campaign.session()
session.run("CREATE EXTENSION gkmeans")
for rng in campaign.cases():
    n = rng.randrange(100)
    session.script.clear()
    outcome = session.run(f"SELECT {n}")
    campaign.check(outcome.ok and outcome.value == str(n), f"{outcome}", session)
campaign.finish()
