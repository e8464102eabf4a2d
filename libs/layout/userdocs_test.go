package layout

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	namedMetric     = regexp.MustCompile("`((?:binnacle|authn_webhook|authz_webhook)_[a-z0-9_]+)[`{]")
	alertRule       = regexp.MustCompile(`(?m)^  - alert: (\w+)$`)
	troubleshooting = regexp.MustCompile(`(?s)\n## Troubleshooting\n(.*?)(?:\n## |\z)`)
	quotedMessage   = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")
	link            = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading         = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notInAnchor     = regexp.MustCompile(`[^\pL\pN _-]`)
	makeTarget      = regexp.MustCompile("(?m)(?:`|^\\$ )make ([a-z][a-z0-9-]*)")
	workflowTargets = regexp.MustCompile(`(?m)^ +(?:- run: (?:>-\s+)?make ([a-z][a-z0-9-]*)|target: \[(.*)\]$)`)
)

// source returns the product code without tests.
func source(t *testing.T) string {
	t.Helper()
	var code strings.Builder
	for _, folder := range []string{"cmd", "deploy", "libs", "services"} {
		for _, text := range files(t, folder, ".go") {
			code.WriteString(text)
		}
	}
	return code.String()
}

// TestDocumentedMetricsExist checks that metrics named in the user documentation exist.
func TestDocumentedMetricsExist(t *testing.T) {
	code, named := source(t), 0
	for page, text := range files(t, "docs/user", ".md") {
		for _, match := range namedMetric.FindAllStringSubmatch(text, -1) {
			name := match[1] // the code composes some
			for _, prefix := range []string{"binnacle_embedded_etcd_", "binnacle_etcd_member_", "binnacle_fanout_"} {
				name = strings.TrimPrefix(name, prefix)
			}
			named++
			if !strings.Contains(code, `"`+match[1]+`"`) && !strings.Contains(code, `"`+name+`"`) {
				t.Errorf("%s names the metric %s, which does not exist", page, match[1])
			}
		}
	}
	if named < 20 {
		t.Errorf("the documentation names %d metrics, want at least 20", named)
	}
}

// TestAlertsAreDocumented checks that each alert has a summary, a description and a link to its
// section of docs/user/alerts.md, and that the page has no others.
func TestAlertsAreDocumented(t *testing.T) {
	rules, err := os.ReadFile(filepath.Join("..", "..", "deploy", "monitoring", "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "user", "alerts.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"Alerts": true}
	for rule := range strings.SplitSeq(string(rules), "\n  - ") {
		match := alertRule.FindStringSubmatch("\n  - " + rule)
		if match == nil {
			continue // the beginning of a group
		}
		known[match[1]] = true
		if !strings.Contains(string(page), "\n## "+match[1]+"\n\n") {
			t.Errorf("alerts.md has no section %s", match[1])
		}
		for _, want := range []string{"\n      summary: \"", "\n      description: \"",
			"\n      runbook_url: \"{{ $externalLabels.docs }}/alerts.md#" + strings.ToLower(match[1]) + "\"", "{severity: "} {
			if !strings.Contains(rule, want) {
				t.Errorf("alert %s has no %q", match[1], strings.TrimSpace(want))
			}
		}
	}
	for _, match := range heading.FindAllStringSubmatch(string(page), -1) {
		if !known[match[1]] {
			t.Errorf("alerts.md describes %s, which is no alert", match[1])
		}
	}
}

// TestTroubleshootingQuotesMessages checks that messages in the first column of a table under
// "Troubleshooting" occur in the code. In them, … stands for variable parts.
func TestTroubleshootingQuotesMessages(t *testing.T) {
	code, found := strings.ReplaceAll(source(t), `\"`, `"`), 0
	for page, text := range files(t, "docs/user", ".md") {
		for _, section := range troubleshooting.FindAllStringSubmatch(text, -1) {
			for _, match := range quotedMessage.FindAllStringSubmatch(section[1], -1) {
				found++
				for part := range strings.SplitSeq(match[1], "…") {
					part = strings.TrimSpace(part)
					if !strings.Contains(code, part) {
						t.Errorf("%s: no code contains the message %q", page, part)
					}
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("the documentation quotes %d messages, want at least 20", found)
	}
}

// TestDocumentationLinksResolve checks that relative links lead to files, and fragments to
// headings.
func TestDocumentationLinksResolve(t *testing.T) {
	pages := files(t, "docs/user", ".md")
	for _, folder := range []string{"docs/dev", "docs/adr", "deploy"} {
		if _, err := os.Stat(filepath.Join("..", "..", folder)); err == nil {
			maps.Copy(pages, files(t, folder, ".md"))
		}
	}
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md",
		"MAINTAINERS.md", "docs/README.md"} {
		data, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		pages["../../"+name] = string(data)
	}
	for page, text := range pages {
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(match[1], ":") {
				continue // another site
			}
			target, fragment, _ := strings.Cut(match[1], "#")
			file := page
			if target != "" {
				file = path.Join(path.Dir(page), target)
			}
			content, err := os.ReadFile(file)
			if info, statErr := os.Stat(file); statErr != nil || err != nil && !info.IsDir() {
				t.Errorf("%s links to %s, which does not exist", page, match[1])
			} else if fragment != "" && !anchors(string(content))[fragment] {
				t.Errorf("%s links to %s, which is not a heading", page, match[1])
			}
		}
	}
}

// anchors returns the fragments of a page's headings, as GitHub forms them.
func anchors(text string) map[string]bool {
	out := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(text, -1) {
		out[strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(match[1]), ""), " ", "-")] = true
	}
	return out
}

// TestDocumentedMakeTargetsExist checks that Makefile targets named in the documentation exist.
func TestDocumentedMakeTargetsExist(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for page, text := range files(t, "", ".md") {
		for _, match := range makeTarget.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(string(makefile), "\n"+match[1]+":") {
				t.Errorf("%s names make %s, which does not exist", page, match[1])
			}
		}
	}
}

// TestWorkflowsCallMakeTargets checks that Makefile targets of the workflows exist. A list of
// targets is a matrix.
func TestWorkflowsCallMakeTargets(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	called := 0
	for workflow, text := range files(t, ".github", ".yaml") {
		for _, match := range workflowTargets.FindAllStringSubmatch(text, -1) {
			for target := range strings.SplitSeq(match[1]+match[2], ", ") {
				called++
				if !strings.Contains(string(makefile), "\n"+target+":") {
					t.Errorf("%s calls make %s, which does not exist", workflow, target)
				}
			}
		}
	}
	if called < 6 {
		t.Errorf("workflows call %d make targets, want at least 6", called)
	}
}
