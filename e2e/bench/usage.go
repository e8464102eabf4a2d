package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
)

// usage is CPU seconds and resident and peak memory of the named processes. anon is the resident
// memory without file pages.
type usage struct{ cpu, rss, hwm, anon map[string]float64 }

func (l *load) measure() usage {
	u := usage{map[string]float64{}, map[string]float64{}, map[string]float64{}, map[string]float64{}}
	for _, p := range strings.Split(l.pids, ",") {
		name, pid, ok := strings.Cut(p, "=")
		if !ok {
			continue
		}
		b, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			continue
		}
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+2:]))
		ut, _ := strconv.ParseFloat(f[11], 64)
		st, _ := strconv.ParseFloat(f[12], 64)
		u.cpu[name] = (ut + st) / 100
		s, _ := os.ReadFile("/proc/" + pid + "/status")
		for _, line := range strings.Split(string(s), "\n") {
			g := strings.Fields(line)
			if len(g) < 2 {
				continue
			}
			v, _ := strconv.ParseFloat(g[1], 64)
			switch g[0] {
			case "VmRSS:":
				u.rss[name] = v / 1024
			case "RssAnon:":
				u.anon[name] = v / 1024
			case "VmHWM:":
				u.hwm[name] = v / 1024
			}
		}
	}
	return u
}

func (l *load) resetPeak() {
	for _, p := range strings.Split(l.pids, ",") {
		if _, pid, ok := strings.Cut(p, "="); ok {
			_ = os.WriteFile("/proc/"+pid+"/clear_refs", []byte("5"), 0)
		}
	}
}

func pct(d []float64, p float64) float64 {
	if len(d) == 0 {
		return -1
	}
	sort.Float64s(d)
	return d[min(len(d)-1, int(p*float64(len(d))))]
}

func (l *load) report(scenario string, before usage, ops int, secs float64, lat []float64, extra map[string]any) {
	after := l.measure()
	out := map[string]any{"scenario": scenario, "label": l.label, "ops": ops, "secs": round(secs), "ops_per_s": round(float64(ops) / secs), "p50_ms": round(pct(lat, .5)), "p90_ms": round(pct(lat, .9)), "p99_ms": round(pct(lat, .99))}
	total := 0.0
	for k, v := range after.cpu {
		d := v - before.cpu[k]
		total += d
		out["cpu_s_"+k] = round(d)
		out["rss_mib_"+k] = round(after.rss[k])
		out["peak_mib_"+k] = round(after.hwm[k])
	}
	out["cpu_s"] = round(total)
	if ops > 0 {
		out["cpu_ms_per_op"] = round(total * 1000 / float64(ops))
	}
	for k, v := range extra {
		out[k] = v
	}
	b, _ := json.Marshal(out)
	fmt.Println(string(b))
	l.results = append(l.results, out)
}

func round(f float64) float64 { return float64(int64(f*1000+0.5)) / 1000 }
