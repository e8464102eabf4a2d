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

// processUsage holds the use of CPU and memory of processes, by their names.
type processUsage struct {
	cpu       map[string]float64 // seconds
	resident  map[string]float64 // MiB
	peak      map[string]float64 // maximum of resident in MiB
	anonymous map[string]float64 // resident memory without pages of files, in MiB
}

// readUsage reads the usage of the processes in l.pids.
func (l *load) readUsage() processUsage {
	usage := processUsage{
		cpu:       map[string]float64{},
		resident:  map[string]float64{},
		peak:      map[string]float64{},
		anonymous: map[string]float64{},
	}
	for _, p := range strings.Split(l.pids, ",") {
		name, pid, ok := strings.Cut(p, "=")
		if !ok {
			continue
		}
		data, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			continue
		}
		// The fields after the program name, which is in parentheses. Times are in 1/100 s.
		f := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+2:]))
		ut, _ := strconv.ParseFloat(f[11], 64)
		st, _ := strconv.ParseFloat(f[12], 64)
		usage.cpu[name] = (ut + st) / 100
		s, _ := os.ReadFile("/proc/" + pid + "/status")
		for _, line := range strings.Split(string(s), "\n") {
			g := strings.Fields(line)
			if len(g) < 2 {
				continue
			}
			v, _ := strconv.ParseFloat(g[1], 64)
			switch g[0] {
			case "VmRSS:":
				usage.resident[name] = v / 1024
			case "RssAnon:":
				usage.anonymous[name] = v / 1024
			case "VmHWM:":
				usage.peak[name] = v / 1024
			}
		}
	}
	return usage
}

// resetPeak resets the peak memory of the processes.
func (l *load) resetPeak() {
	for _, p := range strings.Split(l.pids, ",") {
		if _, pid, ok := strings.Cut(p, "="); ok {
			_ = os.WriteFile("/proc/"+pid+"/clear_refs", []byte("5"), 0)
		}
	}
}

// percentile sorts d and returns the p-th part of it, such as 0.99, or -1 if d is empty.
func percentile(values []float64, rank float64) float64 {
	if len(values) == 0 {
		return -1
	}
	sort.Float64s(values)
	return values[min(len(values)-1, int(rank*float64(len(values))))]
}

// addResult prints a result as a line of JSON and adds it to l.results.
func (l *load) addResult(scenario string, before processUsage, ops int, secs float64, latencies []float64, extra map[string]any) {
	after := l.readUsage()
	out := map[string]any{
		"scenario":  scenario,
		"label":     l.label,
		"ops":       ops,
		"secs":      roundToThousandths(secs),
		"ops_per_s": roundToThousandths(float64(ops) / secs),
		"p50_ms":    roundToThousandths(percentile(latencies, .5)),
		"p90_ms":    roundToThousandths(percentile(latencies, .9)),
		"p99_ms":    roundToThousandths(percentile(latencies, .99)),
	}
	total := 0.0
	for k, v := range after.cpu {
		d := v - before.cpu[k]
		total += d
		out["cpu_s_"+k] = roundToThousandths(d)
		out["rss_mib_"+k] = roundToThousandths(after.resident[k])
		out["peak_mib_"+k] = roundToThousandths(after.peak[k])
	}
	out["cpu_s"] = roundToThousandths(total)
	if ops > 0 {
		out["cpu_ms_per_op"] = roundToThousandths(total * 1000 / float64(ops))
	}
	for k, v := range extra {
		out[k] = v
	}
	b, _ := json.Marshal(out)
	fmt.Println(string(b))
	l.results = append(l.results, out)
}

func roundToThousandths(f float64) float64 { return float64(int64(f*1000+0.5)) / 1000 }
