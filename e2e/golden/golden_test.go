package golden_test

import (
	"crypto/tls"
	"regexp"
	"strings"
	"testing"

	"binnacle/e2e/golden"
	"binnacle/e2e/harness"
)

// concurrency is how many cases run at the same time.
const concurrency = 4

// TestGolden replays all cases against a fresh server. A difference must be listed in
// known-differences.yaml, and a listed one must exist.
func TestGolden(t *testing.T) { replayFolder(t, "cases", nil) }

// TestGoldenAlpha replays the cases for features that are disabled by default.
func TestGoldenAlpha(t *testing.T) {
	replayFolder(t, "cases-alpha", nil,
		"--feature-gates=MutatingAdmissionPolicy=true,DynamicResourceAllocation=true,DRADeviceTaints=true",
		"--runtime-config=admissionregistration.k8s.io/v1alpha1=true,resource.k8s.io/v1alpha3=true,resource.k8s.io/v1beta1=true")
}

// TestGoldenOnMemoryStore replays the cases with most writes against the in-memory store.
func TestGoldenOnMemoryStore(t *testing.T) {
	replayFolder(t, "cases", regexp.MustCompile("^(apply|crud|patch)"), "--storage-backend=memory")
}

// replayFolder replays the cases in a folder against a server with additional flags, and checks the
// results against the known differences. match selects cases by file name, nil selects all.
func replayFolder(t *testing.T, folder string, match *regexp.Regexp, flags ...string) {
	t.Helper()
	const recording = false // read the wanted responses too
	cases, err := golden.Load([]string{folder}, match, recording)
	if err != nil {
		t.Fatal(err)
	}
	known, err := golden.LoadKnown("known-differences.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if folder == "cases" && match == nil {
		for _, step := range known.MissingSteps(cases) {
			t.Errorf("known-differences.yaml lists %s, which no case has", step)
		}
	}
	// The recording ran without kube-controller-manager, which writes statuses.
	flags = append(flags, "--enable-bootstrap-token-auth", "--check-admission-policy-types=false")
	server := harness.StartServer(t, harness.WithServiceAccounts(), harness.WithFlags(flags...))
	// After a restart, resource versions from before it are too old, as in the recording.
	server.Restart()
	cert, err := tls.X509KeyPair(server.Admin.Cert, server.Admin.Key)
	if err != nil {
		t.Fatal(err)
	}
	runner := golden.NewRunner(server.URL, cert)

	results := runCases(t, runner, cases)
	tally := golden.Tally{}
	for _, c := range cases {
		tally.Add(results[c.File])
		for _, r := range results[c.File] {
			if err := known.Check(r); err != nil {
				t.Error(err)
			}
		}
	}
	var report strings.Builder
	if err := tally.Write(&report); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + report.String())
}

// runCases runs the cases concurrently and returns their results by file.
func runCases(t *testing.T, runner *golden.Runner, cases []*golden.Case) map[string][]golden.Result {
	t.Helper()
	type caseResult struct {
		file    string
		results []golden.Result
		err     error
	}
	pending, done := make(chan *golden.Case), make(chan caseResult)
	for range concurrency {
		go func() {
			for c := range pending {
				results, err := runner.Run(c)
				done <- caseResult{file: c.File, results: results, err: err}
			}
		}()
	}
	go func() {
		defer close(pending)
		for _, c := range cases {
			pending <- c
		}
	}()
	all := map[string][]golden.Result{}
	for range cases {
		result := <-done
		if result.err != nil {
			t.Errorf("run of %s: %v", result.file, result.err)
		}
		all[result.file] = result.results
	}
	return all
}
