package scenarios

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"binnacle/e2e/harness"
)

var (
	testName       = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	knownTest      = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(t \*testing\.T\)`)
	documentedFlag = regexp.MustCompile("`(--[a-z0-9-]+)")
)

// TestEverySecurityStatementIsTested checks that each table row, paragraph and list item of
// docs/user/security.md names a test, except in the introduction and in the list of what is not
// protected against.
func TestEverySecurityStatementIsTested(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(harness.Project(t), "docs", "user", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	model, rest, ok := strings.Cut(string(text), "\n## What is not protected against\n")
	_, model, found := strings.Cut(model, "\n## ")
	if !ok || !found || strings.Contains(rest, "\n## ") {
		t.Fatal("unexpected structure of the page")
	}
	checked := 0
	for block := range strings.SplitSeq(model, "\n\n") {
		statements := []string{block}
		if strings.HasPrefix(block, "|") {
			statements = strings.Split(block, "\n")[2:] // without the header and the separator
		}
		for _, s := range statements {
			if strings.HasPrefix(s, "## ") || s == "Identities" || strings.TrimSpace(s) == "" {
				continue
			}
			checked++
			if !testName.MatchString(s) {
				t.Errorf("got statement %q without a test, want one", s)
			}
		}
	}
	if checked < 30 {
		t.Errorf("got only %d statements, want at least 30", checked)
	}
}

// TestDocumentationNamesExistingTestsAndFlags checks that the tests and flags in the documentation
// exist.
func TestDocumentationNamesExistingTestsAndFlags(t *testing.T) {
	t.Parallel()
	project := harness.Project(t)
	tests := map[string]bool{}
	err := filepath.WalkDir(project, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range knownTest.FindAllStringSubmatch(string(source), -1) {
			tests[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	flags := map[string]bool{}
	for _, program := range []harness.Program{
		harness.APIServer, harness.AuthnWebhook, harness.AuthzWebhook, harness.TokenCleaner, harness.BootstrapSigner,
		harness.Controllers, harness.Console,
		harness.Certificates, harness.Images, harness.EtcdServer,
	} {
		for f := range supportedFlags(t, program) {
			flags["--"+f] = true
		}
	}
	for _, command := range [][]string{{"snapshot"}, {"snapshot", "restore"}, {"snapshot", "status"}} {
		for f := range supportedFlags(t, harness.APIServer, command...) {
			flags["--"+f] = true
		}
	}
	for f := range supportedFlags(t, harness.Everything, "up") {
		flags["--"+f] = true
	}
	for f := range supportedFlags(t, harness.Certificates, "check") {
		flags["--"+f] = true
	}
	// Flags of other programs and flags that the help omits.
	for _, f := range []string{
		"--controllers", "--mark-compacted", "--set", "--apiserver-count", "--kubelet-read-only-port",
		"--default-watch-cache-size",
		"--source", "--builder-id", // of deploy/dist
		"--cluster-signing-kubelet-client-cert-file", "--cluster-signing-kubelet-serving-cert-file", "--bootstrap-kubeconfig",
	} {
		flags[f] = true
	}
	pages, err := filepath.Glob(filepath.Join(project, "docs", "*", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("got %d pages, %v", len(pages), err)
	}
	named := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testName.FindAllStringSubmatch(string(text), -1) {
			named++
			if !tests[m[1]] {
				t.Errorf("%s: got test %s, want an existing one", filepath.Base(page), m[1])
			}
		}
		for _, m := range documentedFlag.FindAllStringSubmatch(string(text), -1) {
			if !flags[m[1]] && !strings.HasSuffix(m[1], "-") { // --oidc-*
				t.Errorf("%s: got flag %s, want an existing one", filepath.Base(page), m[1])
			}
		}
	}
	if named < 20 {
		t.Errorf("the documentation names only %d tests, want at least 20", named)
	}
}
