#!/usr/bin/env bash
# Files for systemd, Kubernetes, Prometheus and Grafana: checked against schemas, the agent's own check, and the metrics that it serves.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck disable=SC2154  # set by lib.sh
cd "$tmp" || exit 1
packaging=$repository/packaging

tools="tools that know the schemas"
if ! python3 -m venv venv >pip.log 2>&1 || ! venv/bin/pip -q install kubernetes-validate pyyaml >>pip.log 2>&1; then
  skip "$tools" "kubernetes-validate from a package index"
  exit 0
fi
check "Kubernetes' schemas are kept" venv/bin/kubernetes-validate --strict -k 1.31.0 "$packaging/kubernetes/lowtide.yaml"
sed 's/hostPID: true/hostPDI: true/' "$packaging/kubernetes/lowtide.yaml" >wrong.yaml
venv/bin/kubernetes-validate --strict -k 1.31.0 wrong.yaml >wrong.out 2>&1
between "by which a mistake is found" $? 1 255

# The agent's file of the ConfigMap, with a token and a certificate made here.
venv/bin/python - "$packaging/kubernetes/lowtide.yaml" >agent.toml <<'EOF'
import sys, yaml
for part in yaml.safe_load_all(open(sys.argv[1])):
    if part["kind"] == "ConfigMap":
        print(part["data"]["agent.toml"])
EOF
mkdir serve
echo 0123456789abcdef0123 >serve/token
openssl req -x509 -newkey rsa:2048 -nodes -keyout serve/tls.key -out serve/tls.crt -days 2 -subj /CN=localhost >openssl.log 2>&1
chmod 600 serve/*
sed -i "s|/etc/lowtide-serve|$tmp/serve|; s|/var/lib/lowtide|$tmp|; s|0.0.0.0:9465|127.0.0.1:0|" agent.toml
check "the agent takes the ConfigMap's file" "$LOWTIDE" agent --config agent.toml --check
check "and the one of the package" "$LOWTIDE" agent --config "$packaging/systemd/agent.toml" --check
if command -v systemd-analyze >/dev/null; then
  sed "s|/usr/bin/lowtide|$LOWTIDE|" "$packaging/systemd/lowtide-agent.service" >lowtide-agent.service
  cp "$packaging/systemd/lowtide-agent.socket" .
  check "systemd takes the units" systemd-analyze verify --man=no ./lowtide-agent.service ./lowtide-agent.socket
else
  skip "systemd takes the units" systemd-analyze
fi

rules="Prometheus takes the rules"
if mkdir prometheus && (cd prometheus && apt-get -qq download prometheus && dpkg -x prometheus_*.deb .) >apt.log 2>&1; then
  check "$rules" prometheus/usr/bin/promtool check rules "$packaging/prometheus/lowtide.rules.yaml"
else
  skip "$rules" "promtool from the distribution"
fi

check "the dashboard is a dashboard" venv/bin/python - "$packaging/grafana/lowtide.json" <<'EOF'
import json, sys
board = json.load(open(sys.argv[1]))
assert board["schemaVersion"] >= 36 and board["title"] and board["panels"]
numbers = [panel["id"] for panel in board["panels"]]
assert len(set(numbers)) == len(numbers)
for panel in board["panels"]:
    place = panel["gridPos"]
    assert 0 <= place["x"] and place["x"] + place["w"] <= 24, panel["title"]
    assert all(target["expr"] for target in panel["targets"]), panel["title"]
EOF

served="every metric that is asked for is served"
need root "$served" || exit 0
before=$(kernel_state)
printf 'listen = "unix:%s/http"\nstate_file = "%s/state"\n[[workload]]\ncgroup = "lowtide-test-none/*"\n' "$tmp" "$tmp" >metrics.toml
start "$LOWTIDE" agent --config metrics.toml 2>log
wait_for 20 test -S http
curl -s --unix-socket http -H 'Accept: text/plain' http://localhost/metrics >metrics
kill "$started"
wait "$started"
asked=$(grep -hoE 'lowtide_agent_[a-z_]+' "$packaging"/prometheus/* "$packaging"/grafana/* | sort -u)
known=$(awk '$2 == "TYPE" { print ($4 == "counter") ? $3 "_total" : $3 }' metrics | sort -u)
equals "$served" "$(comm -23 <(echo "$asked") <(echo "$known"))" ""
between "and there are some" "$(echo "$asked" | wc -l)" 5 100
equals "nothing was left in the kernel" "$(kernel_state)" "$before"
