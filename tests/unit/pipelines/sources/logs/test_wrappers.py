"""Wrappers as runtimes, shippers and journals write them, beside those that tests/testing/clothes.py writes."""

from __future__ import annotations

import pytest

from pipelines.sources.logs.wrappers import unwrapped

EVENT = "[2026-11-21 02:41:36,581] DEBUG said (a.A)"
SAMPLES = {
    # kubelet: an empty line, and tags after the first one
    "CRI without text": ("2026-11-21T02:41:36.581000417Z stdout F ", "", "cri"),
    "CRI of CRI-O": (f"2026-11-21T02:41:36.581000417+00:00 stderr P:x {EVENT}", EVENT, "cri"),
    # docker/compose: names are padded, and --timestamps puts a stamp behind the bar
    "compose with stamps": (f"kafka-broker-10  | 2026-11-21T02:41:36.581000417Z {EVENT}", EVENT, "compose,time stamp"),
    # systemd, man journalctl: -o short-precise, short-full, short-unix
    "short-precise": (f"Nov 21 02:41:36.581123 kafka-3 java[812]: {EVENT}", EVENT, "syslog of old"),
    "short-full": (f"Sat 2026-11-21 02:41:36 UTC kafka-3 java[812]: {EVENT}", EVENT, "journal with days"),
    "short-unix": (f"1795228896.581123 kafka-3 java[812]: {EVENT}", EVENT, "journal in seconds"),
    # RFC 5424, with nil values and a byte order mark before the message
    "syslog without values": (f"<13>1 - - - - - - \ufeff{EVENT}", EVENT, "syslog"),
    # RFC 6587: the length of the message before it
    "syslog with lengths": (f"77 <13>1 - - - - - - {EVENT}", EVENT, "syslog"),
    # rsyslog's RSYSLOG_FileFormat
    "rsyslog's file": (f"2026-11-21T02:41:36.581123+01:00 kafka-3 kafka: {EVENT}", EVENT, "journal with dates"),
    # rsyslog's RSYSLOG_ForwardFormat
    "rsyslog's forward": (f"<134>2026-11-21T02:41:36.581123+01:00 kafka-3 kafka: {EVENT}", EVENT, "journal with dates"),
    # systemd, man journalctl: -o json-seq
    "json-seq": (f'\x1e{{"__REALTIME_TIMESTAMP":"1795228896581000","MESSAGE":"{EVENT}"}}', EVENT, "json"),
    # grafana/loki, pkg/logcli/output/default.go: labels are padded, and their values escaped
    "logcli": (f'2026-11-21T02:41:36Z {{app="a \\"b\\""}}      {EVENT}', EVENT, "loki"),
    "logcli without labels": (f"2026-11-21T02:41:36+01:00 {EVENT}", EVENT, "time stamp"),
    # fluent/fluent-bit, plugins/out_stdout: msgpack as text, which was escaped once; plugins/out_file: JSON
    "Fluent Bit with metadata": (
        f'[0] kube.a: [[1795228896.581000000, {{"a"=>"b"}}], {{"a"=>"b", "log"=>"{EVENT} {{"a":"b"}}", "x"=>1}}]',
        f'{EVENT} {{"a":"b"}}',
        "fluent bit",
    ),
    "Fluent Bit, the end of a text with a newline": ('", "stream"=>"stdout", "time"=>"2026"}]', "", "fluent bit's end"),
    "Fluent Bit on standard output": (
        '[0] kube.a: [[1795228896.581, {}], {"stream"=>"stdout", "log"=>"say \\"x\\" {\\u00fc}"}]',
        'say "x" {ü}',
        "fluent bit",
    ),
    "Fluent Bit's file": (f'kube.a: [1795228896.581, {{"log":"{EVENT}"}}]', EVENT, "fluent bit's file,json"),
    # fluent/fluentd, lib/fluent/plugin/out_file.rb
    "fluentd's file": (
        f'2026-11-21T02:41:36+00:00\tkube.a\t{{"log":"{EVENT}"}}',
        EVENT,
        "fluentd's file,json",
    ),
    # grafana/grafana, public/app/features/inspector/utils/download.ts: downloadLogsModelAsTxt, and as it once was
    "Grafana": (f"1795228896581\t2026-11-21T02:41:36.581Z\t{EVENT}", EVENT, "grafana"),
    "Grafana of old": (f"2026-11-21 02:41:36.581\t{EVENT}", EVENT, "grafana"),
    # Fluent Bit that tails CRI files without a parser
    "CRI in Fluent Bit": (f'{{"log":"2026-11-21T02:41:36.581Z stdout F {EVENT}"}}', EVENT, "json,cri"),
    # grafana/loki: push and query_range
    "Loki's answer": (
        f'{{"status":"success","data":{{"resultType":"streams","result":[{{"stream":{{"a":"b"}},"values":'
        f'[["1795228896581000000","{EVENT}"]]}}]}}}}',
        EVENT,
        "json",
    ),
    # elastic/beats, exported fields of Filebeat: message, @timestamp, log.offset
    "Filebeat": (
        f'{{"@timestamp":"2026-11-21T02:41:37.000Z","log":{{"offset":0}},"message":"{EVENT}","ecs":{{"version":"8"}}}}',
        EVENT,
        "json",
    ),
    # not wrapped
    "an event with an ISO date": ("2026-11-21T02:41:36.581Z INFO a.A: said", None, ""),
    "an event with a bar": ("2026-11-21 02:41:36.581 | INFO | said", None, ""),
    "a JSON layout": ('{"@timestamp":"2026-11-21T02:41:36.581Z","level":"INFO","message":"said"}', None, ""),
    "a stack trace": ("\tat a.B(B.java:7) | x", None, ""),
    "JSON without a text": ('{"a":1}', None, ""),
    "no JSON": ('{"log":"x', None, ""),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_samples(name: str) -> None:
    raw, text, names = SAMPLES[name]
    [line] = unwrapped(raw)
    assert (line.raw, line.text, ",".join(line.wrappers)) == (raw, raw if text is None else text, names)


def test_colours_and_windows_marks_are_no_text() -> None:
    [line] = unwrapped("\ufeff\x1b[32m[2026-11-21 02:41:36,581]\x1b[0;39m INFO said\r\n")
    assert line.text == "[2026-11-21 02:41:36,581] INFO said"


def test_fluent_bit_keeps_the_tag_of_a_part() -> None:
    part = '{"time":"2026-11-21T02:41:36.581Z","stream":"stdout","logtag":"P","log":"begun"}'
    assert unwrapped(part)[0].is_part
    assert not unwrapped(part.replace('"P"', '"F"'))[0].is_part
