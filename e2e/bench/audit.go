package main

import (
	"errors"
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
	auditSlice   = 300 * time.Millisecond // duration of a time slice
	auditSlices  = 60                     // number of time slices with audit
	warmupSlices = auditSlices / 10       // first slices, which are not counted
)

// measureAudit measures what audit at level Metadata adds to a GET, with and without events of
// stage RequestReceived.
func measureAudit(like *load, bin string) error {
	started, err := newBench(bin)
	if err != nil {
		return err
	}
	defer started.close()
	policy, log := filepath.Join(started.dir, "policy.yaml"), filepath.Join(started.dir, "audit.log")
	if err := writePolicy(policy, "None", ""); err != nil {
		return err
	}
	api, err := started.startAPIServerProcess("audit", "--authorization-mode=AlwaysAllow",
		"--disable-admission-plugins=ServiceAccount", "--audit-policy-file="+policy, "--audit-log-path="+log)
	if err != nil {
		return err
	}
	defer api.terminate()
	l := started.newLoad(like, "apiserver", api.url, api, "admin")
	client := l.newClient()
	if err := l.create(client, "/api/v1/namespaces",
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"bench-0"}}`); err != nil {
		return err
	}
	if err := l.create(client, "/api/v1/namespaces/bench-0/pods", string(l.podBody(0))); err != nil {
		return err
	}
	a := &auditedServer{load: l, client: client, pid: strconv.Itoa(api.cmd.Process.Pid), policy: policy}
	fmt.Printf("\n| events of a GET | without audit, µs | with | more, median | quartiles | mean |\n|---|---|---|---|---|---|\n")
	if err := a.compare("when the response is complete", "RequestReceived"); err != nil {
		return fmt.Errorf("%w; see %s", err, started.dir)
	}
	return a.compare("when the request arrives, and when the response is complete", "")
}

// auditedServer is a server whose audit policy changes.
type auditedServer struct {
	load   *load
	client *http.Client
	pid    string
	policy string // file with the audit policy
}

// compare measures slices with audit at level Metadata, without the omitted stage, and slices
// without audit in turn. It prints a row of the table.
func (a *auditedServer) compare(name, omittedStage string) error {
	var without, with []float64 // µs
	var increase []float64      // %
	last, err := a.cpuPerGet("None", "")
	if err != nil {
		return err
	}
	for i := range auditSlices {
		audited, err := a.cpuPerGet("Metadata", omittedStage)
		if err != nil {
			return err
		}
		next, err := a.cpuPerGet("None", "")
		if err != nil {
			return err
		}
		if i >= warmupSlices {
			base := (last + next) / 2
			without = append(without, base)
			with = append(with, audited)
			increase = append(increase, 100*(audited/base-1))
		}
		last = next
	}
	sum := 0.0
	for _, percent := range increase {
		sum += percent
	}
	fmt.Printf("| %s | %.1f | %.1f | %.1f %% | %.1f to %.1f %% | %.1f %% |\n", name,
		percentile(without, .5), percentile(with, .5), percentile(increase, .5),
		percentile(increase, .25), percentile(increase, .75), sum/float64(len(increase)))
	return nil
}

// cpuPerGet changes the policy, waits until the server uses it, and returns the server's CPU time of
// a GET in µs.
func (a *auditedServer) cpuPerGet(level, omittedStage string) (float64, error) {
	before, err := a.load.countPolicyReloads(a.client)
	if err != nil {
		return 0, err
	}
	if err := writePolicy(a.policy, level, omittedStage); err != nil {
		return 0, err
	}
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) { // the server offers no notification
		now, err := a.load.countPolicyReloads(a.client)
		if err != nil {
			return 0, err
		}
		if now > before {
			break
		}
		if time.Since(start) > time.Minute {
			return 0, errors.New("the policy did not take effect")
		}
	}

	slice := *a.load
	slice.duration = auditSlice
	cpuBefore := threadCPUTime(a.pid)
	calls, _, _, errs := slice.runForDuration(slice.concurrency, func(int) error {
		code, out, err := slice.request(a.client, http.MethodGet,
			"/api/v1/namespaces/bench-0/pods/pod-00000?resourceVersion=0", "", nil, "application/json")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("get: %d %.300s", code, out)
		}
		return err
	})
	if errs > 0 {
		return 0, fmt.Errorf("%d of %d requests failed", errs, calls)
	}
	return float64(threadCPUTime(a.pid)-cpuBefore) / 1000 / float64(calls), nil
}

// writePolicy atomically writes a policy with one rule. omittedStage may be empty.
func writePolicy(file, level, omittedStage string) error {
	text := "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: " + level + "\n"
	if omittedStage != "" {
		text += "omitStages: [" + omittedStage + "]\n"
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
