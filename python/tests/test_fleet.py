"""The package against the command, and Spark against both. `LOWTIDE` is the command, `FLEET` a folder with telemetry, `RECORD` a record."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import pyarrow.compute as pc
import pytest

import lowtide

LOWTIDE, FLEET = os.environ["LOWTIDE"], os.environ["FLEET"]
POLICY = '[eager.age]\nanon = "10s"\nfile = "30s"\nevery = "10s"\n[slow.promotion]\nlimit = "1%"\nwarm_up = "10m"\n'


def result(*arguments):
    return json.loads(subprocess.run([LOWTIDE, "fleet", *arguments, "--json"], check=True, capture_output=True).stdout)


def figures(of):
    """What is reported, but for where it came from."""
    return {key: value for key, value in of.items() if key not in ("dir", "files", "tuned")}


def test_a_replay_is_that_of_the_command(tmp_path):
    file = tmp_path / "policy.toml"
    file.write_text(POLICY)
    command = result("replay", FLEET, "--policy", str(file), "--price", "3")
    assert figures(lowtide.replay(FLEET, POLICY, price=3)) == figures(command)
    assert figures(lowtide.replay(FLEET, POLICY, price=3, threads=1)) == figures(command)


def test_workloads_are_distinguished_by_a_label():
    command = result("replay", FLEET, "--by", "kind")
    assert len(command["by"]["values"]) > 1
    assert figures(lowtide.replay(FLEET, by="kind")) == figures(command)


def test_a_search_is_that_of_the_command():
    command = result("tune", FLEET, "--policy", "age", "--rate", "1000%", "--tries", "16")
    assert figures(lowtide.tune(FLEET, "age", rate=10.0, tries=16)) == figures(command)
    with pytest.raises(ValueError, match="no settings"):
        lowtide.tune(FLEET, "guard")


def test_telemetry_is_a_table():
    rows = lowtide.telemetry(FLEET).to_table(columns=["host", "anon_bytes", "anon_idle_120s_bytes"])
    assert rows.num_rows > 1000 and pc.min(rows["anon_bytes"]).as_py() >= 0
    assert len(rows["host"].unique()) == lowtide.replay(FLEET)["hosts"]


def test_records_are_read():
    record = pathlib.Path(os.environ["RECORD"])
    assert lowtide.table(record, "usage").num_rows > 3
    summary = lowtide.summary(record)
    assert summary["budget"]["lowtide_bytes"] == lowtide.budget(record).get("lowtide", {}).get("bytes")
    curve = lowtide.curve(record)
    assert curve is None or curve["age_s"].to_pylist() == sorted(curve["age_s"].to_pylist())
    with pytest.raises(ValueError):
        lowtide.summary(record / "none")


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="cannot be replayed"):
        lowtide.replay(FLEET, "[x.pressure]\n")
    with pytest.raises(ValueError, match="host="):
        lowtide.replay(os.path.dirname(__file__))


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in pathlib.Path(folder).rglob("*") if path.is_file())


def test_telemetry_is_uploaded_once_and_what_fails_is_said(tmp_path):
    from lowtide.upload import upload

    store = tmp_path / "store"
    own = files(FLEET)
    assert upload(FLEET, store.as_uri()) == (len(own), [])
    assert files(store) == own and upload(FLEET, store.as_uri()) == (0, [])
    # One that was cut off is uploaded again, and a folder that cannot be made costs what belongs there.
    (store / own[0]).write_bytes(b"cut")
    gone = store / pathlib.Path(own[-1]).parent
    lost = len(list(gone.iterdir()))
    for file in gone.iterdir():
        file.unlink()
    gone.rmdir()
    gone.write_text("in the way")
    count, troubles = upload(FLEET, store.as_uri())
    assert (count, len(troubles)) == (1, lost) and str(gone.name) in troubles[0]


def test_telemetry_is_uploaded_to_a_store_of_s3s_kind():
    server = pytest.importorskip("moto.server")
    from lowtide.upload import upload
    from pyarrow import fs

    os.environ.update({"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_EC2_METADATA_DISABLED": "true"})
    store = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    store.start()
    try:
        host, port = store.get_host_and_port()
        s3 = fs.S3FileSystem(endpoint_override=f"{host}:{port}", scheme="http", region="us-east-1", allow_bucket_creation=True)
        s3.create_dir("bucket")
        url = f"s3://bucket/fleet?endpoint_override={host}:{port}&scheme=http&region=us-east-1"
        own = files(FLEET)
        assert upload(FLEET, url) == (len(own), []) and upload(FLEET, url) == (0, [])
        there = s3.get_file_info(fs.FileSelector("bucket/fleet", recursive=True))
        assert sorted(info.path for info in there if info.is_file) == [f"bucket/fleet/{name}" for name in own]
        # And replayed from there.
        assert figures(lowtide.replay(url, POLICY, by="kind")) == figures(lowtide.replay(FLEET, POLICY, by="kind"))
    finally:
        store.stop()


def test_a_store_that_fails_midway_is_said_and_costs_what_it_did_not_give(tmp_path):
    from lowtide import store

    here = tmp_path / "here"
    shutil.copytree(FLEET, here)
    fleet = store.Fleet(here.as_uri())
    lost = here / files(here)[0]
    lost.unlink()
    cut = here / files(here)[0]
    cut.write_bytes(cut.read_bytes()[:-100])
    hosts = fleet.replays(list(fleet.hosts), POLICY, 1e-5, 1e-4, None, 2)
    result = json.loads(store._lowtide.combine(hosts, POLICY, 0.33, None, None))["result"]
    assert result["trouble"]["files"] == 2 and any(str(lost) in first for first in result["trouble"]["first"])
    assert result["policies"] == lowtide.replay(here, POLICY)["policies"]
    with pytest.raises(ValueError, match="host="):
        lowtide.replay(pathlib.Path(__file__).parent.resolve().as_uri())


def test_a_search_in_a_store_is_that_of_the_command():
    url = pathlib.Path(FLEET).resolve().as_uri()
    here, there = (lowtide.tune(place, "age", rate=10.0, tries=16) for place in (FLEET, url))
    assert (figures(there), there["tuned"]) == (figures(here), here["tuned"])


def test_the_notebook_runs(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("svg")
    book = json.loads((pathlib.Path(__file__).parent.parent / "examples" / "fleet.ipynb").read_text())
    names = {}
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)  # noqa: S102
    names["figure"].savefig(tmp_path / "tuned.svg")
    assert names["result"]["policies"] and (tmp_path / "tuned.svg").stat().st_size > 5000


@pytest.fixture(scope="module")
def spark():
    sql = pytest.importorskip("pyspark.sql")
    # Executors are of this Python, and nothing leaves this machine.
    os.environ.update({"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"})
    # They are processes of their own; one that dies is replaced.
    session = (
        sql.SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.executorEnv.PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        .getOrCreate()
    )
    yield session
    session.stop()


def executors():
    """Processes that are executors of this session."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in words and is_ours(int(folder.name)):
            found.append(int(folder.name))
    return found


def is_ours(pid):
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return False


def test_spark_says_the_same_to_the_last_digit(spark):
    from lowtide import spark as on_spark

    telemetry = spark.read.parquet(FLEET)
    assert figures(on_spark.replay(telemetry, POLICY, by="kind")) == figures(lowtide.replay(FLEET, POLICY, by="kind"))
    here = lowtide.tune(FLEET, "age", rate=10.0, tries=8)
    # As rows of a table, and as files that executors fetch themselves.
    for there in (on_spark.tune(telemetry, "age", rate=10.0, tries=8), on_spark.tune(FLEET, "age", rate=10.0, tries=8)):
        assert (figures(there), there["tuned"]) == (figures(here), here["tuned"])
    assert figures(on_spark.replay(FLEET, POLICY, by="kind")) == figures(lowtide.replay(FLEET, POLICY, by="kind"))


@pytest.mark.parametrize("files", [False, True])
def test_an_executor_that_is_killed_changes_nothing(spark, files):
    from lowtide import spark as on_spark

    telemetry = FLEET if files else spark.read.parquet(FLEET)
    on_spark.replay(telemetry)
    before = executors()
    assert len(before) == 2
    killer = threading.Timer(0.3, os.kill, (before[0], signal.SIGKILL))
    killer.start()
    begun = time.monotonic()
    result = on_spark.replay(telemetry, POLICY)
    assert time.monotonic() - begun > 0.3, "it was over before"
    killer.join()
    assert figures(result) == figures(lowtide.replay(FLEET, POLICY))
    assert before[0] not in executors()
