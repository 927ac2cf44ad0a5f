#!/usr/bin/env bash
# Figures of a recording under way as OpenMetrics, scraped by a real Prometheus on loopback.
# shellcheck source=tests/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
cd "$tmp" || exit 1
before=$(kernel_state)
need "command curl" "metrics are served" || exit 0

start "$PATTERN" "$patterns/fixed.toml" --seconds 60
target=$started
sleep 1
# Port 0: the kernel chooses a free one, and lowtide says which.
# The default price cap delays readings of a busy machine, by as much as they cost more there.
start "$LOWTIDE" record --pid "$target" --max-overhead 20% --listen 127.0.0.1:0 --out watched 2>err
wait_for 10 grep -q 'metrics at' err
recorder=$started
url=$(sed -n 's/.*metrics at //p' err)
sampled() { curl -sS --fail "$url" 2>/dev/null | grep -q '^lowtide_workingset_bytes{.*type="anon",window="1s"}'; }
wait_for 30 sampled
check "metrics are served" curl -sS --fail --output text "$url"
contains "resident memory with its target" "$(cat text)" "lowtide_rss_bytes{pid=\"$target\"}"
contains "working sets by type and window" "$(cat text)" "lowtide_workingset_bytes{pid=\"$target\",type=\"anon\",window=\"1s\"}"
between "64 MiB in use of 512" \
  "$(sed -n 's/^lowtide_workingset_bytes{.*type="anon",window="1s"} //p' text)" 62000000 80000000
equals "and nothing else is" "$(curl -sS --output none --write-out '%{http_code}' "${url%metrics}")" 404
# The thread that reads what strangers send: no capability, and a filter of system calls.
for thread in /proc/"$recorder"/task/*; do
  [ "$(<"$thread/comm")" != http ] || rights=$(grep -E '^(Cap(Prm|Eff)|Seccomp):' "$thread/status" | awk '{ print $2 }' | xargs)
done
equals "who answers has no rights" "$rights" "0000000000000000 0000000000000000 2"
equals "requests for another host are refused" "$(curl -sS --output none --header 'Host: evil.example' --write-out '%{http_code}' "$url")" 403
"$LOWTIDE" record --pid "$target" --listen 0.0.0.0:0 --out beyond 2>err2
equals "an address that other machines reach is wrong usage" $? 2
contains "and the message has what is right" "$(cat err2)" "give 127.0.0.1"

# Unpacked beside the build, not installed: the package would start a service.
folder=${CARGO_TARGET_DIR:-$repository/target}/test-prometheus
if ! [ -x "$folder/usr/bin/prometheus" ] && command -v dpkg-deb >/dev/null; then
  mkdir -p "$folder/package"
  if (cd "$folder/package" && { apt-get -q download prometheus || { apt-get -q update && apt-get -q download prometheus; }; }) >/dev/null 2>&1; then
    dpkg-deb -x "$folder"/package/prometheus_*.deb "$folder"
  fi
  rm -rf "$folder/package"
fi
if [ -x "$folder/usr/bin/prometheus" ]; then
  address=${url#http://}
  cat >prometheus.yml <<YAML
global: { scrape_interval: 1s }
scrape_configs:
  - job_name: lowtide
    static_configs: [{ targets: ["${address%/metrics}"] }]
YAML
  port=19790
  start "$folder/usr/bin/prometheus" --config.file=prometheus.yml --storage.tsdb.path=tsdb \
    --web.listen-address="127.0.0.1:$port" --log.level=error
  prometheus=$started
  ask() { curl -sS --get "http://127.0.0.1:$port/api/v1/query" --data-urlencode "query=$1" | jq -r '.data.result[0].value[1]'; }
  scraped() { [ "$(ask 'up{job="lowtide"}' 2>/dev/null)" = 1 ]; }
  check "a real Prometheus scrapes them" wait_for 30 scraped
  sleep 2
  between "and answers with the working set" "$(ask 'sum(lowtide_workingset_bytes{window="1s"})')" 62000000 80000000
  between "and with how fast the program faults" "$(ask 'lowtide_minor_faults_total')" 0 1000000000
  stop "$prometheus"
else
  skip "a real Prometheus scrapes them" "Debian package prometheus"
fi
"$LOWTIDE" record --pid "$target" --listen "${url#http://}" --out second 2>err2
equals "an address without a port is wrong usage" $? 2
"$LOWTIDE" record --pid "$target" --listen "$(echo "${url#http://}" | cut -d/ -f1)" --out second 2>err2
equals "a port that is taken is refused" $? 1
contains "and said to be" "$(cat err2)" "--listen"
kill -s INT "$recorder"
check "Ctrl-C ends the record" wait_for 20 gone "$recorder"
stop "$target"
equals "nothing was left in the kernel" "$(kernel_state)" "$before"
