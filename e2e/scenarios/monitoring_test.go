package scenarios

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"binnacle/e2e/harness"
)

// expressions are those of the alerts and of the dashboard, by where they stand.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	read := func(file string, unmarshal func([]byte, any) error, into any) {
		data, err := os.ReadFile(filepath.Join(harness.Project(t), "deploy", "monitoring", file))
		if err == nil {
			err = unmarshal(data, into)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string } `json:"rules"`
		} `json:"groups"`
	}
	read("rules.yaml", func(data []byte, into any) error { return yaml.Unmarshal(data, into) }, &rules)
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			out["alert "+r.Alert] = r.Expr
		}
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	read("dashboard.json", json.Unmarshal, &board)
	for _, p := range board.Panels {
		for i, target := range p.Targets {
			out[fmt.Sprintf("panel %s %d", p.Title, i)] = target.Expr
		}
	}
	if len(out) < 30 {
		t.Errorf("%d expressions only", len(out))
	}
	return out
}

var (
	noMetrics = regexp.MustCompile(`\{[^}]*\}|"[^"]*"|\[[^\]]*\]|\b(by|without|on|ignoring)\s*\([^)]*\)|\b[0-9.e]+\b`)
	words     = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*\s*\(?`)
)

// metricsOf are the names of metrics in an expression: words that are neither
// functions nor labels.
func metricsOf(expr string) (out []string) {
	for _, w := range words.FindAllString(noMetrics.ReplaceAllString(expr, " "), -1) {
		if !strings.HasSuffix(w, "(") {
			out = append(out, strings.TrimSpace(w))
		}
	}
	return out
}

// exposed are the metrics of the services on some ports of this machine.
func exposed(t *testing.T, kubeconfig string, first, n int) map[string]bool {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	out := map[string]bool{"up": true} // Prometheus' own
	for port := first; port < first+n; port++ {
		resp, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/metrics", port))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(body)) {
			if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
				name, kind, _ := strings.Cut(strings.TrimSpace(rest), " ")
				out[name] = true
				if kind == "histogram" {
					out[name+"_bucket"], out[name+"_sum"], out[name+"_count"] = true, true, true
				}
			}
		}
	}
	return out
}

// checkMonitoring looks for every metric of the alerts and of the dashboard among
// those that the suite exposes.
func checkMonitoring(t *testing.T, kubeconfig string, first int) {
	t.Helper()
	all := expressions(t)
	harness.Eventually(t, tokenSettle, "every metric is there", func() error {
		have := exposed(t, kubeconfig, first, suiteSize)
		for where, expr := range all {
			names := metricsOf(expr)
			if len(names) == 0 {
				return fmt.Errorf("%s: no metric in %q", where, expr)
			}
			for _, name := range names {
				if !have[name] {
					return fmt.Errorf("%s: no service has the metric %s", where, name)
				}
			}
		}
		return nil
	})
}
