package scenarios

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"binnacle/e2e/harness"
)

// readMonitoringFile reads a file of deploy/monitoring.
func readMonitoringFile(t *testing.T, file string, unmarshal func([]byte, any) error, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(harness.Project(t), "deploy", "monitoring", file))
	if err == nil {
		err = unmarshal(data, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func unmarshalYAML(data []byte, into any) error { return yaml.Unmarshal(data, into) }

// TestAllMetricsAreScraped checks that the scrape configuration has every container with metrics
// and its port.
func TestAllMetricsAreScraped(t *testing.T) {
	t.Parallel()
	var config struct {
		Scrapes []struct {
			TLS    map[string]string `json:"tls_config"`
			Static []struct {
				Targets []string `json:"targets"`
			} `json:"static_configs"`
			// Optional containers are found by DNS.
			Found []struct {
				Names []string `json:"names"`
				Port  int      `json:"port"`
			} `json:"dns_sd_configs"`
		} `json:"scrape_configs"`
	}
	readMonitoringFile(t, "prometheus.yaml", unmarshalYAML, &config)
	scraped := map[string]bool{}
	certs, _ := createCertificates(t)
	for _, test := range config.Scrapes {
		for _, s := range test.Static {
			for _, target := range s.Targets {
				scraped[target] = true
			}
		}
		for _, f := range test.Found {
			for _, name := range f.Names {
				scraped[net.JoinHostPort(name, strconv.Itoa(f.Port))] = true
			}
		}
		for _, file := range slices.Sorted(maps.Keys(test.TLS)) {
			if !strings.HasSuffix(file, "_file") {
				continue
			}
			if _, err := os.Stat(filepath.Join(certs, "monitoring", strings.TrimPrefix(test.TLS[file], "/certs/"))); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	// The exporter of NATS is not part of the composition.
	compose, there := readComposeFile(t), map[string]bool{"nats-exporter:7777": true}
	for name, s := range compose.Services {
		switch imageName.FindStringSubmatch(s.Image)[1] {
		case "etcd":
			there[name+":2381"] = true
		case "nats", "balancer": // have no metrics there
		case "console":
			there[name+":6448"] = true
		default:
			there[name+":"+publishedPort(compose, name)] = true
		}
	}
	if !maps.Equal(scraped, there) {
		t.Errorf("scrape configuration has %v, want %v", slices.Sorted(maps.Keys(scraped)), slices.Sorted(maps.Keys(there)))
	}
}

// publishedPort returns the port at which the console finds a container.
func publishedPort(compose composition, name string) string {
	for _, a := range compose.Services["console"].Command {
		if _, port, ok := strings.Cut(a, "=https://"+name+":"); ok {
			return port
		}
	}
	return "not known to the console"
}

// dashboardExpressions returns the expressions of the alerts and of the dashboard by location.
func dashboardExpressions(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string } `json:"rules"`
		} `json:"groups"`
	}
	readMonitoringFile(t, "rules.yaml", unmarshalYAML, &rules)
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
	readMonitoringFile(t, "dashboard.json", json.Unmarshal, &board)
	for _, p := range board.Panels {
		for i, target := range p.Targets {
			out[fmt.Sprintf("panel %s %d", p.Title, i)] = target.Expr
		}
	}
	if len(out) < 30 {
		t.Errorf("got only %d expressions, want at least 30", len(out))
	}
	return out
}

var (
	noMetrics = regexp.MustCompile(`\{[^}]*\}|"[^"]*"|\[[^\]]*\]|\b(by|without|on|ignoring)\s*\([^)]*\)|\b(and|or|unless|bool)\b|\b[0-9.e]+\b`)
	words     = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*\s*\(?`)
)

// elsewhere matches metrics that a suite with the embedded etcd does not have: of a cluster of
// etcd, of the exporter of NATS, of kubelets and of kube-state-metrics.
var elsewhere = regexp.MustCompile(`^(binnacle_etcd_member|etcd_(disk|server)|gnatsd|kubelet|kube_cronjob)_`)

// metricNames returns the metric names in an expression: words that are neither functions nor
// labels.
func metricNames(expr string) (out []string) {
	for _, w := range words.FindAllString(noMetrics.ReplaceAllString(expr, " "), -1) {
		if !strings.HasSuffix(w, "(") {
			out = append(out, strings.TrimSpace(w))
		}
	}
	return out
}

// exposedMetrics returns the metrics of the services on some local ports.
func exposedMetrics(t *testing.T, kubeconfig string, first, count int) (map[string]bool, error) {
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
	out := map[string]bool{"up": true} // of Prometheus itself
	for port := first; port < first+count; port++ {
		resp, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/metrics", port))
		if err != nil {
			return nil, err // not started yet
		}
		body, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return nil, err
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
	return out, nil
}

// checkMonitoring checks that the suite exposes every metric of the alerts and of the dashboard.
func checkMonitoring(t *testing.T, kubeconfig string, first int) {
	t.Helper()
	all := dashboardExpressions(t)
	harness.Eventually(t, tokenSettle, "all metrics", func() error {
		have, err := exposedMetrics(t, kubeconfig, first, suiteSize)
		if err != nil {
			return err
		}
		for where, expr := range all {
			names := metricNames(expr)
			if len(names) == 0 {
				return fmt.Errorf("%s: got no metric in %q", where, expr)
			}
			for _, name := range names {
				if !have[name] && !elsewhere.MatchString(name) {
					return fmt.Errorf("%s: no service has the metric %s", where, name)
				}
			}
		}
		return nil
	})
}
