package dashboard_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"binnacle/e2e/bench/dashboard"
)

// example has a row, a panel with two queries, and a panel whose query has no data.
const example = `{"title": "example", "panels": [
 {"type": "row", "title": "Heading", "gridPos": {"x": 0, "y": 0, "w": 24, "h": 1}},
 {"type": "timeseries", "title": "Memory", "gridPos": {"x": 0, "y": 1, "w": 12, "h": 8}, "fieldConfig": {"defaults": {"unit": "bytes"}},
  "targets": [{"refId": "A", "expr": "max_over_time(used[$__interval])", "legendFormat": "{{instance}} used"}, {"refId": "B", "expr": "gone[${__rate_interval}]", "legendFormat": "gone"}]},
 {"type": "timeseries", "title": "Silent", "gridPos": {"x": 12, "y": 1, "w": 12, "h": 8}, "fieldConfig": {"defaults": {"unit": "s"}},
  "targets": [{"refId": "A", "expr": "rate(silent[$__rate_interval])", "legendFormat": ""}]}
]}`

// fakePrometheus serves query_range.
type fakePrometheus struct {
	*httptest.Server
	mu      sync.Mutex
	queries []string
}

// newPrometheus starts a Prometheus that returns the lines of a query: the labels, and the values
// of the points. "" is a missing point.
func newPrometheus(t *testing.T, lines func(query string) map[string][]string) *fakePrometheus {
	t.Helper()
	fake := &fakePrometheus{}
	fake.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/query_range" {
			http.NotFound(w, r)
			return
		}
		query := r.FormValue("query")
		fake.mu.Lock()
		fake.queries = append(fake.queries, query)
		fake.mu.Unlock()
		if strings.Contains(query, "bad") {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"status":"error","errorType":"bad_data","error":"parse error in %s"}`, query)
			return
		}
		start, _ := strconv.Atoi(r.FormValue("start"))
		step, _ := strconv.Atoi(r.FormValue("step"))
		if end, _ := strconv.Atoi(r.FormValue("end")); end-start != 300 || start%step != 0 {
			t.Errorf("got a query from %d to %d with step %d, want 300 s in whole steps", start, end, step)
		}
		result := []any{}
		for labels, values := range lines(query) {
			var points [][2]any
			for i, v := range values {
				if v != "" {
					points = append(points, [2]any{start + i*step, v})
				}
			}
			result = append(result, map[string]any{"metric": map[string]string{"instance": labels}, "values": points})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"status": "success",
			"data":   map[string]any{"resultType": "matrix", "result": result},
		})
	}))
	t.Cleanup(fake.Close)
	return fake
}

// writeDashboard writes a dashboard.
func writeDashboard(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "dashboard.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// drawDashboard draws five minutes.
func drawDashboard(t *testing.T, server, board, name string, more ...string) (drawn, output string, err error) {
	t.Helper()
	var out bytes.Buffer
	file := filepath.Join(t.TempDir(), name)
	err = dashboard.Run(append([]string{"-prometheus", server, "-dashboard", board, "-out", file, "-last", "5m"}, more...), &out)
	data, readErr := os.ReadFile(file)
	if (err == nil) != (readErr == nil) {
		t.Errorf("got error %v, and picture: %v", err, readErr)
	}
	return string(data), out.String(), err
}

// TestRunDrawsDashboard checks the titles, legends, axes and queries of a drawn dashboard, and that
// queries without data are reported.
func TestRunDrawsDashboard(t *testing.T) {
	t.Parallel()
	fakePrometheus := newPrometheus(t, func(query string) map[string][]string {
		switch {
		case strings.Contains(query, "used"): // three parts: one point is missing, one is NaN
			return map[string][]string{"one": {"0", "3145728", "", "1048576", "2097152", "NaN", "1", "2"}}
		case strings.Contains(query, "silent"): // only NaN
			return map[string][]string{"one": {"NaN", "NaN"}}
		}
		return nil
	})
	drawn, output, err := drawDashboard(t, fakePrometheus.URL, writeDashboard(t, example), "out.svg")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">Heading<", ">Memory<", ">one used<", ">1 MiB<", ">3 MiB<", ">Silent<",
		"Liberation Sans,Arial"} {
		if !strings.Contains(drawn, want) {
			t.Errorf("want %q in the picture", want)
		}
	}
	if n := strings.Count(drawn, ">no data<"); n != 1 {
		t.Errorf("got %d panels without data, want 1", n)
	}
	// The first colour is used for each part and in the legend.
	if n := strings.Count(drawn, "stroke:#56A64B"); n != 4 {
		t.Errorf("got a line of %d parts, want 3", n-1)
	}
	if want := "no data: panel \"Memory\", query B\nno data: panel \"Silent\", query A\n"; output != want {
		t.Errorf("got output %q, want %v", output, want)
	}
	if got := strings.Join(fakePrometheus.queries, " "); got != "max_over_time(used[15s]) gone[60s] rate(silent[60s])" {
		t.Errorf("got query %s, want \"max_over_time(used[15s]) gone[60s] rate(silent[60s])\"", got)
	}
	if _, _, err := drawDashboard(t, fakePrometheus.URL, writeDashboard(t, example), "out.svg", "-scrape", "1m"); err != nil ||
		fakePrometheus.queries[5] != "rate(silent[240s])" {
		t.Errorf("with a scrape interval of one minute: got query %s, %v, want rate(silent[240s])", fakePrometheus.queries[5], err)
	}
	if drawn, _, err := drawDashboard(t, fakePrometheus.URL, writeDashboard(t, example), "out.png"); err != nil ||
		!strings.HasPrefix(drawn, "\x89PNG") {
		t.Errorf("as PNG: got %.8q, %v, want the signature of PNG", drawn, err)
	}
}

// TestLongLegendIsTruncated checks that entries that do not fit below a panel are counted.
func TestLongLegendIsTruncated(t *testing.T) {
	t.Parallel()
	fakePrometheus := newPrometheus(t, func(string) map[string][]string {
		out := map[string][]string{}
		for i := range 100 {
			out[fmt.Sprintf("instance-of-this-%03d", i)] = []string{"1", "2"}
		}
		return out
	})
	drawn, output, err := drawDashboard(t, fakePrometheus.URL, writeDashboard(t, example), "out.svg")
	if err != nil || output != "" {
		t.Fatal(err, output)
	}
	if shown := strings.Count(drawn, ">instance-of-this-"); shown < 4 || !strings.Contains(drawn,
		fmt.Sprintf(">and %d more<", 200-shown)) {
		t.Errorf("got %d entries without the number of the others, want it", shown)
	}
}

// TestShippedDashboardIsDrawn draws every panel of deploy/monitoring's dashboard.
func TestShippedDashboardIsDrawn(t *testing.T) {
	t.Parallel()
	fakePrometheus := newPrometheus(t, func(string) map[string][]string { return map[string][]string{"one": {"1", "2"}} })
	file := filepath.Join("..", "..", "..", "deploy", "monitoring", "dashboard.json")
	drawn, output, err := drawDashboard(t, fakePrometheus.URL, file, "out.svg")
	if err != nil || output != "" {
		t.Fatal(err, output)
	}
	for _, query := range fakePrometheus.queries {
		if strings.Contains(query, "$") {
			t.Errorf("got query %s, want all variables replaced", query)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var board struct{ Panels []struct{ Title string } }
	if err := json.Unmarshal(data, &board); err != nil || len(board.Panels) < 20 {
		t.Fatalf("got %d panels, %v, want at least 20", len(board.Panels), err)
	}
	for _, panel := range board.Panels {
		if !strings.Contains(drawn, ">"+strings.ReplaceAll(panel.Title, "'", "&#39;")+"<") {
			t.Errorf("got no panel %q, want one", panel.Title)
		}
	}
}

// TestRunReportsErrors checks that each invalid argument, dashboard and query causes an error that
// names it.
func TestRunReportsErrors(t *testing.T) {
	t.Parallel()
	fakePrometheus := newPrometheus(t, func(string) map[string][]string { return nil })
	gone := httptest.NewServer(nil)
	gone.Close()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }))
	t.Cleanup(other.Close)
	board := writeDashboard(t, example)
	for name, test := range map[string]struct {
		server, board, file string
		more                []string
		want                []string
	}{
		"unreachable server": {server: gone.URL, board: board, file: "a.svg",
			want: []string{"Prometheus does not respond", "-prometheus"}},
		"response of another server": {
			server: other.URL,
			board:  board,
			file:   "a.svg",
			want:   []string{"is not Prometheus'", "200 OK"},
		},
		"queries are refused": {server: fakePrometheus.URL,
			board: writeDashboard(t, strings.NewReplacer("gone", "bad1", "silent", "bad2").Replace(example)), file: "a.svg",
			want: []string{`panel "Memory", query B`, "bad_data: parse error in bad1[60s]", `panel "Silent", query A`}},
		"dashboard file is missing": {server: fakePrometheus.URL, board: board + "x", file: "a.svg", want: []string{"-dashboard"}},
		"dashboard is not JSON": {server: fakePrometheus.URL, board: writeDashboard(t, "panels:"), file: "a.svg",
			want: []string{"dashboard.json", "invalid character"}},
		"dashboard has no panels": {
			server: fakePrometheus.URL,
			board:  writeDashboard(t, `{"a": 1}`),
			file:   "a.svg",
			want:   []string{"no panels"},
		},
		"an unknown type": {server: fakePrometheus.URL, board: writeDashboard(t, strings.Replace(example, "timeseries", "gauge", 1)),
			file: "a.svg", want: []string{`panel "Memory": unsupported type "gauge"`}},
		"an unknown unit": {server: fakePrometheus.URL, board: writeDashboard(t, strings.Replace(example, `"bytes"`, `"furlongs"`, 1)),
			file: "a.svg", want: []string{`panel "Memory": unsupported unit "furlongs"`}},
		"an unknown format": {server: fakePrometheus.URL, board: board, file: "a.doc", want: []string{".svg"}},
		"time range is zero": {
			server: fakePrometheus.URL,
			board:  board,
			file:   "a.svg",
			more:   []string{"-last", "0s"},
			want:   []string{"-last"},
		},
		"unknown flag": {
			server: fakePrometheus.URL,
			board:  board,
			file:   "a.svg",
			more:   []string{"-since", "1s"},
			want:   []string{"since"},
		},
		"output folder is missing": {server: fakePrometheus.URL, board: board, file: filepath.Join("b", "a.svg"), want: []string{"a.svg"}},
		"invalid address":          {server: "://", board: board, file: "a.svg", want: []string{"protocol scheme"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := drawDashboard(t, test.server, test.board, test.file, test.more...)
			if err == nil {
				t.Fatalf("got no error, want one with %q", test.want)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got error %v, want %q in it", err, want)
				}
			}
		})
	}
}
