// Package dashboard draws a Grafana dashboard from its JSON and the data of a Prometheus, without
// Grafana. Run implements `bench dashboard`.
//
// It supports rows and time series in the dashboard's grid, with legends below and the units of
// fieldConfig on the axis. Anything else is an error, so that a picture is never incomplete.
// dashboard.go reads the dashboard and queries Prometheus, draw.go draws.
package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// board is the used part of a dashboard.
type board struct {
	Title  string
	Panels []*panel
}

// panel is a panel of a dashboard, or the heading of a row.
type panel struct {
	Type, Title string
	GridPos     struct{ X, Y, W, H int } // columns of 24, and heights of 30 px
	FieldConfig struct {
		Defaults struct {
			Unit     string
			Min, Max *float64 // limits of the axis; derived from the data if missing
		}
	}
	Targets []target

	lines []line // results of the queries
}

// target is a query of a panel.
type target struct{ RefID, Expr, LegendFormat string }

// line is the result of a query for one set of labels.
type line struct {
	name   string
	points []point
}

// point is a value at a time in seconds since 1970.
type point struct{ at, value float64 }

// UnmarshalJSON decodes a time and a value, which is a string.
func (p *point) UnmarshalJSON(data []byte) (err error) {
	var value string
	if err := json.Unmarshal(data, &[2]any{&p.at, &value}); err != nil {
		return err
	}
	p.value, err = strconv.ParseFloat(value, 64)
	return err
}

// period is the drawn time range.
type period struct {
	begin, end time.Time
	step       time.Duration
	variables  *strings.Replacer
}

// pointsPerPanel is the approximate number of points that Grafana queries for a panel.
const pointsPerPanel = 500

// newPeriod returns the time range that ends now, with the points and variables that Grafana would
// use for a scrape interval.
func newPeriod(now time.Time, timeRange, scrape time.Duration) period {
	step := max(scrape, (timeRange / pointsPerPanel).Round(time.Second))
	end := now.Truncate(step)
	var pairs []string
	for name, value := range map[string]time.Duration{
		"__rate_interval": max(step+scrape, 4*scrape), "__interval": step, "__range": timeRange,
	} {
		text := strconv.Itoa(int(value.Seconds())) + "s"
		pairs = append(pairs, "${"+name+"}", text, "$"+name, text)
	}
	return period{begin: end.Add(-timeRange), end: end, step: step, variables: strings.NewReplacer(pairs...)}
}

// Run draws a dashboard with the arguments of `bench dashboard`. It reports every query without
// data to out.
func Run(args []string, out io.Writer) error {
	fs := flag.NewFlagSet("dashboard", flag.ContinueOnError)
	server := fs.String("prometheus", "http://127.0.0.1:9090", "URL of a Prometheus with the data")
	from := fs.String("dashboard", "../deploy/monitoring/dashboard.json", "file of the dashboard")
	to := fs.String("out", "dashboard.svg", "output file (.svg, .png or .pdf)")
	timeRange := fs.Duration("last", 10*time.Minute, "time range to draw, up to now")
	scrape := fs.Duration("scrape", 15*time.Second, "scrape interval of Prometheus, which determines $__rate_interval")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *timeRange <= 0 || *scrape < time.Second {
		return errors.New("-last and -scrape must be times of at least a second")
	}
	read, err := readDashboard(*from)
	if err != nil {
		return err
	}
	shown := newPeriod(time.Now(), *timeRange, *scrape)
	missing, err := read.queryPanels(context.Background(), *server, shown)
	if err != nil {
		return err
	}
	if err := read.drawPanels(*to, shown); err != nil {
		return err
	}
	for _, what := range missing {
		fmt.Fprintln(out, "no data:", what)
	}
	return nil
}

// readDashboard reads a dashboard and checks that it can be drawn.
func readDashboard(file string) (*board, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w; -dashboard names the dashboard's JSON", err)
	}
	read := &board{}
	if err := json.Unmarshal(data, read); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(read.Panels) == 0 {
		return nil, fmt.Errorf("%s has no panels: is it a dashboard?", file)
	}
	var errs []error
	for _, p := range read.Panels {
		switch {
		case p.Type == "row":
		case p.Type != "timeseries":
			errs = append(errs, fmt.Errorf("panel %q: unsupported type %q, want row or timeseries", p.Title, p.Type))
		case units[p.FieldConfig.Defaults.Unit] == nil:
			errs = append(errs, fmt.Errorf("panel %q: unsupported unit %q; draw.go lists the supported ones", p.Title,
				p.FieldConfig.Defaults.Unit))
		}
	}
	return read, errors.Join(errs...)
}

// queryPanels queries Prometheus for all panels and returns the queries without data. The errors of
// rejected queries are joined.
func (b *board) queryPanels(ctx context.Context, server string, shown period) (missing []string, err error) {
	var rejected []error
	for _, queried := range b.Panels {
		for _, query := range queried.Targets {
			lines, err := query.runQuery(ctx, server, shown)
			if unreachable := (*url.Error)(nil); errors.As(err, &unreachable) {
				return nil, fmt.Errorf("Prometheus does not respond: %w; start it, or name another with -prometheus", err)
			}
			where := fmt.Sprintf("panel %q, query %s", queried.Title, query.RefID)
			if err != nil {
				rejected = append(rejected, fmt.Errorf("%s: %w", where, err))
			} else if len(lines) == 0 {
				missing = append(missing, where)
			}
			queried.lines = append(queried.lines, lines...)
		}
	}
	return missing, errors.Join(rejected...)
}

// runQuery returns the result of one query.
func (t target) runQuery(ctx context.Context, server string, shown period) ([]line, error) {
	expr := shown.variables.Replace(t.Expr)
	form := url.Values{
		"query": {expr}, "start": {strconv.FormatInt(shown.begin.Unix(), 10)}, "end": {strconv.FormatInt(shown.end.Unix(), 10)},
		"step": {strconv.Itoa(int(shown.step.Seconds()))},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(server, "/")+"/api/v1/query_range",
		strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var response struct {
		Status, ErrorType, Error string
		Data                     struct {
			Result []struct {
				Metric map[string]string
				Values []point
			}
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&response); err != nil {
		return nil, fmt.Errorf("the response to %s, %s, is not Prometheus': %w", expr, resp.Status, err)
	}
	if response.Status != "success" {
		return nil, fmt.Errorf("Prometheus rejects %s: %s: %s", expr, response.ErrorType, response.Error)
	}
	var out []line
	for _, r := range response.Data.Result {
		// NaN, such as a quantile of an empty histogram, and infinity are no values. x-x is 0 for
		// others.
		points := slices.DeleteFunc(r.Values, func(p point) bool { return p.value-p.value != 0 })
		if len(points) > 0 {
			out = append(out, line{name: t.lineName(r.Metric), points: points})
		}
	}
	return out, nil
}

// labelPlaceholder matches a label in a legend, such as {{instance}}.
var labelPlaceholder = regexp.MustCompile(`\{\{\s*(.+?)\s*\}\}`)

// lineName returns the legend of a line with its labels. A missing label is empty.
func (t target) lineName(labels map[string]string) string {
	if t.LegendFormat == "" {
		return t.Expr
	}
	return strings.TrimSpace(labelPlaceholder.ReplaceAllStringFunc(t.LegendFormat, func(s string) string {
		return labels[labelPlaceholder.FindStringSubmatch(s)[1]]
	}))
}
