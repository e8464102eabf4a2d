package golden_test

import (
	"crypto/tls"
	"regexp"
	"strings"
	"testing"

	"binnacle/e2e/golden"
	"binnacle/e2e/harness"
)

const concurrency = 4

// TestGolden replays all cases against a fresh server. A difference must be listed in
// known-differences.yaml, and a listed one must exist.
func TestGolden(t *testing.T) { playFolder(t, "cases", nil) }

// TestGoldenAlpha replays the cases for features that are disabled by default.
func TestGoldenAlpha(t *testing.T) {
	playFolder(t, "cases-alpha", nil, "--feature-gates=MutatingAdmissionPolicy=true,DynamicResourceAllocation=true,DRADeviceTaints=true",
		"--runtime-config=admissionregistration.k8s.io/v1alpha1=true,resource.k8s.io/v1alpha3=true,resource.k8s.io/v1beta1=true")
}

// TestGoldenOnMemoryStore replays the cases with most writes.
func TestGoldenOnMemoryStore(t *testing.T) {
	playFolder(t, "cases", regexp.MustCompile("^(apply|crud|patch)"), "--storage-backend=memory")
}

// playFolder replays the cases in a folder whose file names match, and checks their results against
// the known differences.
func playFolder(t *testing.T, folder string, match *regexp.Regexp, flags ...string) {
	t.Helper()
	cases, err := golden.Load([]string{folder}, match, false)
	if err != nil {
		t.Fatal(err)
	}
	known, err := golden.LoadKnown("known-differences.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if folder == "cases" && match == nil {
		for _, stray := range known.MissingSteps(cases) {
			t.Errorf("known-differences.yaml: got step %s, want an existing one", stray)
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
	type played struct {
		file    string
		results []golden.Result
		err     error
	}
	waiting, done := make(chan *golden.Case), make(chan played)
	for range concurrency {
		go func() {
			for c := range waiting {
				results, err := runner.Run(c)
				done <- played{c.File, results, err}
			}
		}()
	}
	go func() {
		defer close(waiting)
		for _, c := range cases {
			waiting <- c
		}
	}()
	all := map[string][]golden.Result{}
	for range cases {
		p := <-done
		if p.err != nil {
			t.Errorf("%s: %v", p.file, p.err)
		}
		all[p.file] = p.results
	}
	return all
}
