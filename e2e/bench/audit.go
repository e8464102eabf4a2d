package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The cost of audit is smaller than the difference between two processes. One process therefore
// switches between two policies, and each time slice with audit is compared with its two neighbours
// without.
const (
	auditSlice  = 300 * time.Millisecond
	auditSlices = 60
)

// measureAudit measures what audit at level Metadata adds to a GET, with and without events of
// stage RequestReceived.
func measureAudit(like *load, bin string) error {
	b, err := newBench(bin)
	if err != nil {
		return err
	}
	defer b.close()
	policy, log := filepath.Join(b.dir, "policy.yaml"), filepath.Join(b.dir, "audit.log")
	if err := writePolicy(policy, "None", ""); err != nil {
		return err
	}
	api, err := b.startAPIServerProcess("audit", "--authorization-mode=AlwaysAllow",
		"--disable-admission-plugins=ServiceAccount", "--audit-policy-file="+policy, "--audit-log-path="+log)
	if err != nil {
		return err
	}
	defer api.terminate()
	l := b.newLoad(like, "apiserver", api.url, api, "admin")
	c := l.newClient()
	if err := l.create(c, "/api/v1/namespaces",
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"bench-0"}}`); err != nil {
		return err
	}
	if err := l.create(c, "/api/v1/namespaces/bench-0/pods", string(l.podBody(0))); err != nil {
		return err
	}
	pid := strconv.Itoa(api.cmd.Process.Pid)
	// cpuPerGet returns the server's CPU time of a GET in µs under a policy.
	cpuPerGet := func(level, omit string) (float64, error) {
		before, err := l.countPolicyReloads(c)
		if err != nil {
			return 0, err
		}
		if err := writePolicy(policy, level, omit); err != nil {
			return 0, err
		}
		for start := time.Now(); ; time.Sleep(5 * time.Millisecond) { // the server offers no notification
			now, err := l.countPolicyReloads(c)
			if err != nil {
				return 0, err
			}
			if now > before {
				break
			}
			if time.Since(start) > time.Minute {
				return 0, fmt.Errorf("the policy did not take effect; see %s", b.dir)
			}
		}
		slice := *l
		slice.duration = auditSlice
		from := threadCPUTime(pid)
		ops, _, _, errs := slice.runForDuration(slice.concurrency, func(int) error {
			code, out, err := slice.request(c, http.MethodGet,
				"/api/v1/namespaces/bench-0/pods/pod-00000?resourceVersion=0", "", nil, "application/json")
			if err == nil && code != http.StatusOK {
				err = fmt.Errorf("get: %d %.300s", code, out)
			}
			return err
		})
		if errs > 0 {
			return 0, fmt.Errorf("%d of %d requests failed", errs, ops)
		}
		return float64(threadCPUTime(pid)-from) / 1000 / float64(ops), nil
	}
	fmt.Printf("\n| events of a GET | without audit, µs | with | more, median | quartiles | mean |\n|---|---|---|---|---|---|\n")
	for _, kind := range []struct{ name, omit string }{
		{"when the response is complete", "RequestReceived"},
		{"when the request arrives, and when the response is complete", ""},
	} {
		var without, with, more []float64
		last, err := cpuPerGet("None", "")
		for i := 0; i < auditSlices && err == nil; i++ {
			var withAudit, next float64
			if withAudit, err = cpuPerGet("Metadata", kind.omit); err == nil {
				next, err = cpuPerGet("None", "")
			}
			if i >= auditSlices/10 { // skip the warm-up
				base := (last + next) / 2
				without, with, more = append(without, base), append(with, withAudit), append(more, 100*(withAudit/base-1))
			}
			last = next
		}
		if err != nil {
			return err
		}
		sum := 0.0
		for _, m := range more {
			sum += m
		}
		fmt.Printf("| %s | %.1f | %.1f | %.1f %% | %.1f to %.1f %% | %.1f %% |\n", kind.name, percentile(without, .5),
			percentile(with, .5), percentile(more, .5), percentile(more, .25), percentile(more, .75), sum/float64(len(more)))
	}
	return nil
}

// writePolicy atomically writes a policy with one rule.
func writePolicy(file, level, omit string) error {
	text := "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: " + level + "\n"
	if omit != "" {
		text += "omitStages: [" + omit + "]\n"
	}
	text += fmt.Sprintf("# %d\n", time.Now().UnixNano()) // makes the content unique
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// countPolicyReloads returns the number of times the server has loaded a policy.
func (l *load) countPolicyReloads(c *http.Client) (int, error) {
	code, out, err := l.request(c, http.MethodGet, "/metrics", "", nil, "")
	if err != nil || code != http.StatusOK {
		return 0, fmt.Errorf("metrics: %d, %w", code, err)
	}
	const name = `binnacle_audit_policy_reloads_total{status="success"} `
	lines := strings.Split(string(out), "\n")
	i := slices.IndexFunc(lines, func(s string) bool { return strings.HasPrefix(s, name) })
	if i < 0 {
		return 0, nil
	}
	n, err := strconv.ParseFloat(lines[i][len(name):], 64)
	return int(n), err
}

// threadCPUTime returns the CPU time of a process's live threads in nanoseconds. It is more precise
// than the time in the process's metrics.
func threadCPUTime(pid string) (sum int64) {
	files, _ := filepath.Glob("/proc/" + pid + "/task/*/schedstat")
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		n, _ := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		sum += n
	}
	return sum
}
