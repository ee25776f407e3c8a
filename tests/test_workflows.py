"""The workflows that test and publish: what they call exists, they may do little, and a pull request publishes nothing."""

import re

import pytest
import yaml
from conftest import ROOT

NAMES = sorted(p.name for p in (ROOT / ".github/workflows").glob("*.yml"))
PUBLISHING = ("upload-pages-artifact", "deploy-pages")
ON_MAIN = "github.event_name != 'pull_request' && github.ref == 'refs/heads/main'"


def workflow(name):
    """A workflow; YAML 1.1 reads its key `on` as true."""
    found = yaml.safe_load((ROOT / ".github/workflows" / name).read_text(encoding="utf-8"))
    return found | {"on": found.pop(True)}


def steps(name):
    return [step | {"job": job} for job, described in workflow(name)["jobs"].items() for step in described["steps"]]


def commands(name):
    return "\n".join(step.get("run", "") for step in steps(name))


def targets():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))


def absent(run, whole=""):
    """Targets of make, and files, that commands of a workflow name and the project lacks; `pdf` is asked for only where make knows it."""
    called = re.findall(r"\bmake ((?:--[\w-]+ )*)([\w-]+)", run)
    files = re.findall(r"(?<![~\w/.])(?:book|tests|lib|\.ci)/[\w./-]+", run)
    files += re.findall(r"hashFiles\(([^)]*)\)", whole)
    named = [f.strip(" '") for text in files for f in text.split(",")]
    return [t for _, t in called if t not in targets() | {"pdf"}] + [f for f in named if not (ROOT / f).exists()]


@pytest.mark.parametrize("name", NAMES)
def test_what_a_workflow_calls_exists(name):
    assert "make test" in commands(name)
    assert absent(commands(name), (ROOT / ".github/workflows" / name).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_workflow_may_only_read_but_for_the_job_that_deploys(name):
    described = workflow(name)
    assert described["permissions"] == {"contents": "read"}
    for job in described["jobs"].values():
        deploys = any("deploy-pages" in step.get("uses", "") for step in job["steps"])
        assert job.get("permissions", {}) == ({"pages": "write", "id-token": "write"} if deploys else {})
        assert job["timeout-minutes"] <= 60
    assert "secrets." not in commands(name) and "pull_request_target" not in described["on"]


@pytest.mark.parametrize("name", NAMES)
def test_actions_are_those_of_the_host_at_a_major_version_and_keep_no_credentials(name):
    for step in steps(name):
        if "uses" in step:
            assert re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"])
            assert "checkout" not in step["uses"] or step["with"]["persist-credentials"] is False
        # what others write (titles, names of branches) would be run as commands
        assert "${{" not in step.get("run", "")


def test_a_pull_request_is_tested_and_publishes_nothing():
    described = workflow("publish.yml")
    assert set(described["on"]) == {"push", "pull_request", "workflow_dispatch"} and described["on"]["push"]["branches"] == ["main"]
    publishing = [step for step in steps("publish.yml") if any(action in step.get("uses", "") for action in PUBLISHING)]
    assert len(publishing) == len(PUBLISHING)
    for step in publishing:
        job = described["jobs"][step["job"]]
        assert ON_MAIN in (job.get("if"), step.get("if"))
        assert step["job"] == "test" or job["needs"] == "test"


def test_what_is_published_is_the_site_that_was_tested():
    order = [step.get("run") or step["uses"] for step in steps("publish.yml") if step["job"] == "test"]
    assert order.index("make test") < order.index("actions/upload-pages-artifact@v5")
    (upload,) = (step for step in steps("publish.yml") if "upload-pages-artifact" in step.get("uses", ""))
    assert upload["with"]["path"] == "_build/html"


def test_the_weekly_run_pins_nothing_and_stops_nothing():
    described = workflow("weekly.yml")
    assert set(described["on"]) == {"schedule", "workflow_dispatch"}
    (job,) = described["jobs"].values()
    assert job["continue-on-error"] is True and job["strategy"]["fail-fast"] is False
    assert "make test CONSTRAINTS= " in commands("weekly.yml")


def test_two_lines_say_where_the_site_and_its_sources_are():
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    for address in (config["html"]["baseurl"], config["repository"]["url"]):
        assert address == "" or address.startswith("https://")


def test_a_missing_target_or_file_would_be_seen():
    assert absent("make tests && python book/_site/chromiun.py && make --dry-run book") == ["tests", "book/_site/chromiun.py"]
    assert absent("make book", "key: ${{ hashFiles('constraints.txt', 'constraint.txt') }}") == ["constraint.txt"]
