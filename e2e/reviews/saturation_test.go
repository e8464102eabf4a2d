package reviews

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// burst is a recording of concurrent requests.
type burst struct {
	Exchange
	Responses []struct {
		Status  int               `json:"status"`
		Headers map[string]string `json:"headers"`
		Body    any               `json:"body"`
	} `json:"answers"`
	Flags []string `json:"flags"`
}

// debugPage is a recorded debug page.
type debugPage struct {
	Name, Path string
	Status     int
	Text       []string
	Body       any
}

// gate is a webhook that holds each create of a ConfigMap until the test releases its user.
type gate struct {
	release map[string]chan struct{}
}

// newGate starts a gate and registers it.
func newGate(t *testing.T, owner *player) *gate {
	t.Helper()
	created := &gate{release: map[string]chan struct{}{
		"bob":   make(chan struct{}),
		"alice": make(chan struct{}),
		"admin": make(chan struct{}),
	}}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			Request struct {
				UID      string
				UserInfo struct{ Username string }
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		select {
		case <-created.release[review.Request.UserInfo.Username]:
		case <-r.Context().Done():
		}
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`, review.Request.UID)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{Certificate(t, owner.server.PKI.Serving("gate"))}}
	server.StartTLS()
	t.Cleanup(server.Close)
	owner.mustRequest("POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
		fmt.Sprintf(`{"metadata":{"name":"gate"},"webhooks":[{"name":"gate.ex.test",
		"clientConfig":{"url":%q,"caBundle":%q},"sideEffects":"None","admissionReviewVersions":["v1"],"timeoutSeconds":30,
		"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]}]}]}`,
			strings.Replace(server.URL, "127.0.0.1", "localhost", 1)+"/hold", owner.values["<base64>"]))
	return created
}

// releaseCreates lets n creates of a user finish.
func (g *gate) releaseCreates(user string, count int) {
	for range count {
		g.release[user] <- struct{}{}
	}
}

// createResponse is the response to a create.
type createResponse struct {
	status int
	header http.Header
	body   any
}

// startCreates sends n creates of a user concurrently. Responses are sent to the channel as they
// arrive.
func (p *player) startCreates(user, prefix string, n int) <-chan createResponse {
	out := make(chan createResponse, n)
	for i := range n {
		go func() {
			clientRequest := &ClientRequest{
				Method: "POST",
				Path:   "/api/v1/namespaces/sat/configmaps",
				Body:   map[string]any{"metadata": map[string]any{"name": fmt.Sprintf("%s-%d", prefix, i)}},
			}
			if user != "admin" {
				clientRequest.User = "token:t-" + user
			}
			status, header, body := p.sendRequest(clientRequest)
			out <- createResponse{status, header, body}
		}()
	}
	return out
}

// receiveResponses waits for n responses.
func receiveResponses(t *testing.T, from <-chan createResponse, n int) (out []createResponse) {
	t.Helper()
	for range n {
		select {
		case c := <-from:
			out = append(out, c)
		case <-time.After(50 * time.Second):
			t.Fatalf("got %d of %d responses after 50 s: %v", len(out), n, out)
		}
	}
	return out
}

// replayBurst replays concurrent creates of a user. It expects the rejections first, calls
// meanwhile unless it is nil, and then lets the other requests finish. names maps placeholders to
// UIDs.
func (p *player) replayBurst(seats *gate, recorded *burst, user, prefix string, names map[string]string, meanwhile func()) {
	p.t.Helper()
	responses := p.startCreates(user, prefix, len(recorded.Responses))
	rejected := slices.DeleteFunc(slices.Clone(recorded.Responses), func(test struct {
		Status  int               `json:"status"`
		Headers map[string]string `json:"headers"`
		Body    any               `json:"body"`
	}) bool {
		return test.Status == http.StatusCreated
	})
	for i, createResponse := range receiveResponses(p.t, responses, len(rejected)) {
		want := rejected[i]
		if createResponse.status != want.Status || createResponse.body != want.Body {
			p.t.Errorf("%s: got %d %v, want %d %v", recorded.Name, createResponse.status, createResponse.body, want.Status, want.Body)
		}
		for k, v := range want.Headers {
			if named, ok := names[v]; ok {
				v = named
			}
			if got := createResponse.header.Get(k); got != v {
				p.t.Errorf("%s: header %s: got %q, want %q", recorded.Name, k, got, v)
			}
		}
	}
	if meanwhile != nil {
		meanwhile()
	}
	rest := len(recorded.Responses) - len(rejected)
	seats.releaseCreates(user, rest)
	for _, createResponse := range receiveResponses(p.t, responses, rest) {
		if createResponse.status != http.StatusCreated {
			p.t.Errorf("%s: got %d %v, want 201", recorded.Name, createResponse.status, createResponse.body)
		}
	}
}

const flowAPI = "/apis/flowcontrol.apiserver.k8s.io/v1/"

// TestSaturatedLevelsMatchRecordings replays bursts in levels with three seats and compares the
// debug pages and metrics.
func TestSaturatedLevelsMatchRecordings(t *testing.T) {
	t.Parallel()
	var bursts []*burst
	var pages []debugPage
	for file, into := range map[string]any{"saturation.json": &bursts, "dumps.json": &pages} {
		if err := loadJSON(filepath.Join("testdata", "flow", file), into); err != nil {
			t.Fatal(err)
		}
	}
	player := newPlayer(t, nil)
	names := player.createLevels()
	gate := newGate(t, player)
	findBurst := func(part string) *burst {
		for _, b := range bursts {
			if strings.Contains(b.Name, part) {
				return b
			}
		}
		t.Fatalf("no recording of %q", part)
		return nil
	}
	checkPages := func(when string) {
		seen := 0
		for _, want := range pages {
			if strings.HasPrefix(want.Name, when) {
				seen++
				player.checkDebugPage(want)
			}
		}
		if seen == 0 {
			t.Fatalf("no page is recorded for %q", when)
		}
	}
	checkPages("with three more levels")
	player.replayBurst(gate, findBurst("8 creates"), "bob", "tiny", names, func() {
		checkPages("level tiny saturated")
		for _, name := range []string{"GET of the same user", "/healthz of the same user"} {
			e := findBurst(name)
			status, header, body := player.sendRequest(e.Client)
			if jsonText(status) != jsonText(e.Response.Status) || body != e.Response.Body ||
				(header.Get("Retry-After") == "") != (e.Response.Headers["Retry-After"] == nil) {
				t.Errorf("%s: got %d %v with headers %v, want %v %v with headers %v", name, status, body, header,
					e.Response.Status, e.Response.Body, e.Response.Headers)
			}
		}
	})
	player.replayBurst(gate, findBurst("9 creates"), "alice", "queued", names, func() { checkPages("level tinyq saturated") })
	zero := findBurst("zero shares")
	if status, _, body := player.sendRequest(zero.Client); jsonText(status) != jsonText(zero.Response.Status) ||
		len(differences("", toGenericJSON(zero.Response.Body), body)) > 0 {
		t.Errorf("%s: got %d %v, want %v %v", zero.Name, status, body, zero.Response.Status, zero.Response.Body)
	}
	player.replayBurst(gate, findBurst("creates of 20 s"), "alice", "late", names, nil)
	player.checkFlowMetrics()
}

// createLevels creates the levels and flow schemas of the recording. It returns their UIDs by
// placeholder.
func (p *player) createLevels() map[string]string {
	p.t.Helper()
	names := map[string]string{}
	p.mustRequest("POST", "/api/v1/namespaces", `{"metadata":{"name":"sat"}}`)
	p.mustRequest("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/sat/rolebindings",
		`{"metadata":{"name":"sat"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"bob"},{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"alice"}]}`)
	for level, limited := range map[string]string{
		"tiny":  `"nominalConcurrencyShares":1,"lendablePercent":0,"borrowingLimitPercent":0,"limitResponse":{"type":"Reject"}`,
		"tinyq": `"nominalConcurrencyShares":1,"lendablePercent":0,"borrowingLimitPercent":0,"limitResponse":{"type":"Queue","queuing":{"queues":1,"handSize":1,"queueLengthLimit":2}}`,
		"zero":  `"nominalConcurrencyShares":0,"lendablePercent":0,"borrowingLimitPercent":0,"limitResponse":{"type":"Reject"}`,
	} {
		p.mustRequest("POST", flowAPI+"prioritylevelconfigurations",
			fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"type":"Limited","limited":{%s}}}`, level, limited))
		_, _, made := p.sendRequest(&ClientRequest{Method: "GET", Path: flowAPI + "prioritylevelconfigurations/" + level})
		names["<"+level+">"] = made.(map[string]any)["metadata"].(map[string]any)["uid"].(string)
	}
	for schema, of := range map[string][2]string{
		"bob-tiny":    {"tiny", "bob"},
		"alice-q":     {"tinyq", "alice"},
		"cadmin-zero": {"zero", "cadmin"},
	} {
		p.mustRequest("POST", flowAPI+"flowschemas",
			fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"priorityLevelConfiguration":{"name":%q},"matchingPrecedence":100,"rules":[{"subjects":[{"kind":"User","user":{"name":%q}}],
			"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"namespaces":["*"],"clusterScope":true}]}]}}`, schema, of[0], of[1]))
		_, _, made := p.sendRequest(&ClientRequest{Method: "GET", Path: flowAPI + "flowschemas/" + schema})
		names["<"+schema+">"] = made.(map[string]any)["metadata"].(map[string]any)["uid"].(string)
	}
	return names
}

var (
	spacesPattern  = regexp.MustCompile(` +`)
	timePattern    = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z|<time>`)
	secondsPattern = regexp.MustCompile(`\d+\.\d+ss`)
)

// checkDebugPage compares the first line of a debug page and the rows of the levels that the test
// creates. The other rows and all times depend on the server.
func (p *player) checkDebugPage(want debugPage) {
	p.t.Helper()
	path := want.Path
	status, _, body := p.sendRequest(&ClientRequest{Method: "GET", Path: path})
	if status != want.Status {
		p.t.Errorf("%s: got %d %v, want %d", want.Name, status, body, want.Status)
		return
	}
	got, _ := body.(string)
	rows := func(all []string) (out []string) {
		for i, row := range all {
			level, _, _ := strings.Cut(row, ",")
			if i > 0 && level != "tiny" && level != "tinyq" && level != "zero" {
				continue
			}
			row = secondsPattern.ReplaceAllString(timePattern.ReplaceAllString(row, "<time>"), "<seconds>")
			out = append(out, strings.TrimSpace(spacesPattern.ReplaceAllString(row, " ")))
		}
		slices.Sort(out[1:])
		return out
	}
	if w, g := rows(want.Text), rows(strings.Split(got, "\n")); !slices.Equal(w, g) {
		p.t.Errorf("%s: got rows\n\t%s\nwant\n\t%s", want.Name, strings.Join(g, "\n\t"), strings.Join(w, "\n\t"))
	}
}

// checkFlowMetrics compares the names, types, labels and buckets of the flow control metrics with
// the recorded ones.
func (p *player) checkFlowMetrics() {
	p.t.Helper()

	// 1. Read the recorded metrics, and those of the server.
	var recorded []struct {
		Name, Type string
		Labels     []string
		Buckets    []string
	}
	if err := loadJSON(filepath.Join("testdata", "flow", "metrics.json"), &recorded); err != nil {
		p.t.Fatal(err)
	}
	r, err := http.NewRequest(http.MethodGet, p.server.URL+"/metrics", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := p.client.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()

	// 2. Collect the type, the labels and the buckets of each metric of the server.
	types := map[string]string{}
	labels, buckets := map[string]map[string]bool{}, map[string]map[string]bool{}
	sample := regexp.MustCompile(`^(apiserver_flowcontrol_\w+?)(_bucket|_sum|_count)?(?:\{(.*)\})? \S+$`)
	label := regexp.MustCompile(`(\w+)="([^"]*)"`)
	lines := bufio.NewScanner(io.LimitReader(resp.Body, 64<<20))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) == 4 && f[1] == "TYPE" {
			types[f[2]] = f[3]
			continue
		}
		m := sample.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		name := m[1]
		if types[name] == "" {
			name += m[2] // the suffix is part of the name
		}
		if labels[name] == nil {
			labels[name], buckets[name] = map[string]bool{}, map[string]bool{}
		}
		for _, l := range label.FindAllStringSubmatch(m[3], -1) {
			if l[1] == "le" {
				buckets[name][l[2]] = true
			} else {
				labels[name][l[1]] = true
			}
		}
	}
	if err := lines.Err(); err != nil {
		p.t.Fatal(err)
	}

	// 3. Compare.
	hasExactly := func(all map[string]bool, want []string) bool {
		for _, w := range want {
			if !all[w] {
				return false
			}
		}
		return len(all) == len(want)
	}
	for _, want := range recorded {
		if types[want.Name] != want.Type || !hasExactly(labels[want.Name], want.Labels) ||
			!hasExactly(buckets[want.Name], want.Buckets) {
			p.t.Errorf("%s: got %s with labels %v and buckets %v, want %s with labels %v and buckets %v", want.Name,
				types[want.Name], labels[want.Name], buckets[want.Name], want.Type, want.Labels, want.Buckets)
		}
	}
}

// TestMaxInFlightLimits replays bursts against a server without priority and fairness, which limits
// the number of requests in flight.
func TestMaxInFlightLimits(t *testing.T) {
	t.Parallel()
	var recorded []*burst
	if err := loadJSON(filepath.Join("testdata", "flow", "without-priority-and-fairness.json"), &recorded); err != nil {
		t.Fatal(err)
	}
	player := newPlayer(t, nil, recorded[0].Flags...)
	player.createLevels()
	g := newGate(t, player)
	player.replayBurst(g, recorded[1], "bob", "bob", nil, func() {
		// Administrators are not limited.
		player.replayBurst(g, recorded[2], "admin", "min", nil, nil)
	})
	for _, e := range recorded[3:] {
		status, header, body := player.sendRequest(e.Client)
		if jsonText(status) != jsonText(e.Response.Status) {
			t.Errorf("%s: got %d %v, want %v", e.Name, status, body, e.Response.Status)
		}
		for k, v := range e.Response.Headers {
			if header.Get(k) != v {
				t.Errorf("%s: header %s: got %q, want %q", e.Name, k, header.Get(k), v)
			}
		}
		if s, ok := e.Response.Body.(string); ok && s != body {
			t.Errorf("%s: got %v, want %q", e.Name, body, s)
		}
	}
}
