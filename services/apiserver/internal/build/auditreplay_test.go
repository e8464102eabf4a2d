package build

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"
)

// recorded is a request and the audit events of kube-apiserver 1.33.13.
type recorded struct {
	Name   string
	Policy string   // audit policy, in YAML
	Flags  []string // of kube-apiserver
	Client *struct {
		Method, Path string
		Headers      map[string]string
		Body         json.RawMessage
		User         json.RawMessage // see ask; absent for the administrator
	}
	Status int               // status code of the response
	Lines  []json.RawMessage // of the audit log
}

// recordings reads a file of recordings; see testdata/audit/README.md.
func recordings(t *testing.T, name string) (out []recorded) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "audit", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// auditFixture is a server that audits to a file, and its clients.
type auditFixture struct {
	*testServer
	file string       // audit log
	anon *http.Client // without a certificate
	own  *http.Client // with an administrator's certificate
	// expected maps the audit IDs of sent requests to their number of lines, or -1 for any number.
	expected map[string]int
	account  string            // requestToken of the service account a/default
	replace  *strings.Replacer // of placeholders in recordings
}

// auditUsers is the content of the token file.
const auditUsers = "t-bob,bob,u-bob\nt-alice,alice,u-alice\nt-admin,tokenadmin,u-ta,system:masters\n"

// startAudited starts a server with the policy of the recordings.
func startAudited(t *testing.T, change func(*config.Options)) *auditFixture {
	t.Helper()
	dir := t.TempDir()
	fixture := &auditFixture{file: filepath.Join(dir, "audit.log"), expected: map[string]int{}, replace: strings.NewReplacer()}
	files := map[string]string{"policy.yaml": recordings(t, "1-verbs.json")[0].Policy, "tokens.csv": auditUsers}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	key := signingKey(t)
	fixture.testServer = startServer(t, func(options *config.Options) {
		issuing(key)(options)
		options.Admission.Disable = nil
		options.Authorization.Modes = []string{"RBAC"}
		options.Authentication.TokenFile = filepath.Join(dir, "tokens.csv")
		options.Audit.PolicyFile = filepath.Join(dir, "policy.yaml")
		options.Audit.Log.Path = fixture.file
		if change != nil {
			change(options)
		}
	})
	fixture.anon = &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:    &tls.Config{InsecureSkipVerify: true},
			DisableCompression: true,
			DisableKeepAlives:  true,
		},
	}
	certificates := fixture.client.Transport.(*http.Transport).TLSClientConfig
	fixture.own = &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:    &tls.Config{InsecureSkipVerify: true, Certificates: certificates.Certificates},
			DisableCompression: true,
			DisableKeepAlives:  true,
		},
	}
	for _, namespace := range []string{"a", "req", "meta", "none", "omit", "stages"} {
		fixture.prepare(201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"`+namespace+`"}}`)
	}
	fixture.prepare(201, "POST", "/api/v1/namespaces",
		`{"metadata":{"name":"psa","labels":{"pod-security.kubernetes.io/enforce":"baseline","pod-security.kubernetes.io/audit":"restricted"}}}`)
	for _, namespace := range []string{"a", "psa"} {
		fixture.prepare(201, "POST", "/api/v1/namespaces/"+namespace+"/serviceaccounts", `{"metadata":{"name":"default"}}`)
	}
	r := fixture.prepare(201, "POST", "/api/v1/namespaces/a/serviceaccounts/default/token", `{"spec":{}}`)
	fixture.account, _ = r.field("status", "token").(string)
	return fixture
}

// preparing is the User-Agent of requests that are not in the recordings.
const preparing = "preparing"

// prepare sends a request that is not in the recordings, and checks its status code.
func (fixture *auditFixture) prepare(code int, method, path, body string, header ...string) apiResponse {
	fixture.t.Helper()
	return fixture.mustSend(code, method, path, body, append(header, "User-Agent", preparing)...)
}

// ask sends a recorded request. It returns the status code and the audit ID. A user "token:" and a text
// authenticates with that token, any other user with the token of the service account a/default, and
// null without credentials.
func (fixture *auditFixture) ask(r *recorded) (int, string) {
	fixture.t.Helper()
	test := r.Client
	body := []byte(test.Body)
	var text string
	if json.Unmarshal(body, &text) == nil {
		body = []byte(text)
	} else if len(body) > 0 {
		compact := &bytes.Buffer{}
		if err := json.Compact(compact, body); err != nil {
			fixture.t.Fatal(err)
		}
		body = compact.Bytes()
	}
	req, err := http.NewRequest(test.Method, fixture.url+fixture.replace.Replace(test.Path), bytes.NewReader([]byte(fixture.replace.Replace(string(body)))))
	if err != nil {
		fixture.t.Fatal(err)
	}
	req.Header.Set("User-Agent", "recorder")
	if len(r.Lines) > 0 && bytes.HasPrefix(r.Lines[0], []byte("{")) && !bytes.Contains(r.Lines[0], []byte(`"userAgent"`)) {
		req.Header.Set("User-Agent", "")
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range test.Headers {
		req.Header.Set(k, v)
	}
	client := fixture.own
	if len(test.User) > 0 {
		client = fixture.anon
		var user string
		_ = json.Unmarshal(test.User, &user) // null means no user
		if token, ok := strings.CutPrefix(user, "token:"); ok {
			req.Header.Set("Authorization", "Bearer "+token)
		} else if user != "" {
			req.Header.Set("Authorization", "Bearer "+fixture.account)
		}
	}
	httpResponse, err := client.Do(req)
	if err != nil {
		fixture.t.Fatalf("%s: %v", r.Name, err)
	}
	defer httpResponse.Body.Close()
	if httpResponse.StatusCode != http.StatusSwitchingProtocols && !strings.Contains(r.Name, "ended by the client") {
		if _, err := io.Copy(io.Discard, httpResponse.Body); err != nil {
			fixture.t.Errorf("%s: %v", r.Name, err)
		}
	}
	id := httpResponse.Header.Get("Audit-Id")
	return httpResponse.StatusCode, id
}

// read returns the complete lines of the log. The last line may be half written.
func (fixture *auditFixture) read() string {
	data, err := os.ReadFile(fixture.file)
	if err != nil && !os.IsNotExist(err) {
		fixture.t.Fatal(err)
	}
	return string(data[:bytes.LastIndexByte(data, '\n')+1])
}

// logged returns the lines of each request by audit ID, in order. It omits the requests of prepare and
// of the test's other clients.
func (fixture *auditFixture) logged() map[string][]json.RawMessage {
	fixture.t.Helper()
	out := map[string][]json.RawMessage{}
	for _, line := range bytes.SplitAfter([]byte(fixture.read()), []byte("\n")) {
		var event struct{ AuditID, UserAgent string }
		if !bytes.HasSuffix(line, []byte("\n")) {
			continue // incomplete
		}
		if err := json.Unmarshal(line, &event); err != nil {
			fixture.t.Fatalf("%v in line %q", err, line)
		}
		if event.UserAgent != preparing && event.UserAgent != "Go-http-client/2.0" && event.UserAgent != "Go-http-client/1.1" {
			out[event.AuditID] = append(out[event.AuditID], line)
		}
	}
	return out
}

// replay sends a recorded request and compares its events. knownDifference is the reason for which
// they may differ, or "". Equal events in spite of a reason are an error, too.
func (fixture *auditFixture) replay(r *recorded, knownDifference string) {
	fixture.t.Helper()
	// 1. Send the request and wait for its events.
	code, auditID := fixture.ask(r)
	var got []json.RawMessage
	fixture.waitUntil("audited: "+r.Name, func() bool {
		all := fixture.logged()
		if auditID == "" { // upgrade responses of other servers have no ID
			auditID = fixture.unknown(all)
		}
		got = all[auditID]
		return len(got) >= len(r.Lines) && (knownDifference == "" || isComplete(got))
	})
	fixture.expected[auditID] = len(r.Lines)
	if knownDifference != "" {
		fixture.expected[auditID] = -1
	}

	// 2. Compare them with the recorded ones.
	var wrong []string
	if code != r.Status {
		wrong = append(wrong, fmt.Sprintf("got status %d, want %d", code, r.Status))
	}
	if len(got) != len(r.Lines) {
		wrong = append(wrong, fmt.Sprintf("%d lines, want %d", len(got), len(r.Lines)))
	}
	for i := range min(len(got), len(r.Lines)) {
		line := scrubbed(fixture.t, fixture.replace.Replace(string(got[i])))
		want := scrubbed(fixture.t, fixture.replace.Replace(string(r.Lines[i])))
		if !strings.Contains(want, latencies) {
			line = inTime(line)
		}
		if line != want {
			wrong = append(wrong, fmt.Sprintf("line %d\n  got %s\n want %s", i, line, want))
		}
	}
	switch {
	case knownDifference == "" && len(wrong) > 0:
		fixture.t.Errorf("%s: got events that differ from the recorded ones, want equal ones:\n%s", r.Name, strings.Join(wrong, "\n"))
	case knownDifference != "" && len(wrong) == 0:
		fixture.t.Errorf("%s: got the recorded events, want the known difference: %s", r.Name, knownDifference)
	}
}

// checkUnexpected reports events of requests that the test did not send.
func (fixture *auditFixture) checkUnexpected() {
	fixture.t.Helper()
	for id, lines := range fixture.logged() {
		if n, ok := fixture.expected[id]; !ok || n >= 0 && n != len(lines) {
			fixture.t.Errorf("request %s: got %d events, want %d: %s", id, len(lines), n, lines)
		}
	}
}

// unknown returns an audit ID that no earlier request had, or "".
func (fixture *auditFixture) unknown(all map[string][]json.RawMessage) string {
	for id := range all {
		if _, ok := fixture.expected[id]; !ok {
			return id
		}
	}
	return ""
}

// isComplete reports whether the last stage of a request was recorded.
func isComplete(lines []json.RawMessage) bool {
	return len(lines) > 0 && bytes.Contains(lines[len(lines)-1], []byte(`"stage":"ResponseComplete"`))
}

// scrubs replaces the parts of a line that differ between runs.
var scrubs = []struct{ pattern, replacement string }{
	{pattern: `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|<uid-\d+>`, replacement: "<uid>"},
	{pattern: `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`, replacement: "<time>"},
	{pattern: `("resourceVersion":)"(\d+|<rv-\d+>)"`, replacement: `$1"<rv>"`},
	{pattern: `gen-[a-z0-9]{5}\b|gen-<random>`, replacement: "gen-<random>"},
	{pattern: `X509SHA256=[0-9a-f]{64}`, replacement: "X509SHA256=<hex>"},
	{pattern: `JTI=<[a-z0-9-]+>`, replacement: "JTI=<uid>"},
	{pattern: `"eyJ2IjoibWV0YS[A-Za-z0-9_-]+"`, replacement: `"<continue>"`},
	{pattern: `"[0-9.]+(ns|µs|ms|s)"`, replacement: `"<duration>"`},
	{pattern: `"apiserver\.latency\.k8s\.io/[a-z-]+":"<duration>",`}, // slow requests
	{pattern: `127\.0\.0\.1:(\d+|<port>)`, replacement: "127.0.0.1:<port>"},
}

// scrubbed replaces the parts of a line that differ between runs. It keeps the order of fields.
func scrubbed(t *testing.T, line string) string {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(line))
	dec.UseNumber()
	text, err := ordered(dec)
	if err != nil {
		t.Fatalf("%v in %q", err, line)
	}
	return scrub(text)
}

// latencies is the prefix of annotations of requests that take more than half a second.
const latencies = "apiserver.latency.k8s.io/"

// inTime removes the annotations of slow requests.
func inTime(line string) string {
	line = regexp.MustCompile(`"`+regexp.QuoteMeta(latencies)+`[a-z-]+":"<duration>",?`).ReplaceAllString(line, "")
	return strings.NewReplacer(`,}`, `}`, `"annotations":{},`, ``, `,"annotations":{}`, ``).Replace(line)
}

// scrub applies scrubs to a text.
func scrub(text string) string {
	for _, s := range scrubs {
		text = regexp.MustCompile(s.pattern).ReplaceAllString(text, s.replacement)
	}
	return text
}

// ordered encodes a value again in the same order.
func ordered(dec *json.Decoder) (string, error) {
	token, err := dec.Token()
	if err != nil {
		return "", err
	}
	delim, ok := token.(json.Delim)
	if !ok {
		var b strings.Builder
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		err := enc.Encode(token)
		return strings.TrimSuffix(b.String(), "\n"), err
	}
	var parts []string
	for dec.More() {
		key := ""
		if delim == '{' {
			if key, err = ordered(dec); err != nil {
				return "", err
			}
			key += ":"
		}
		value, err := ordered(dec)
		if err != nil {
			return "", err
		}
		parts = append(parts, key+value)
	}
	end, err := dec.Token()
	return delim.String() + strings.Join(parts, ",") + fmt.Sprint(end), err
}

// differences returns the intended differences from the recordings, with reasons.
func differences() map[string]string {
	const incomplete = "the recording lacks the stage ResponseComplete of an apply in YAML"
	const kubelet = "requests for a node are proxied to its kubelet"
	return map[string]string{
		"10-kubelet-requests.json: node proxy":                       kubelet,
		"10-kubelet-requests.json: node proxy with a port":           kubelet,
		"10-kubelet-requests.json: node proxy, POST":                 kubelet,
		"1-verbs.json: apply, YAML body":                             incomplete,
		"1-verbs.json: apply conflict":                               incomplete,
		"9-apply-json.json: apply, YAML body":                        incomplete,
		"2-refusals-and-identities.json: impersonation without user": "the response is 400, because the request is invalid",
		"4-annotations.json: deprecated API: componentstatuses":      "the components are ordered; the order of the recording is random",
		"4-annotations.json: deprecated custom resource version":     "the fields of the response have the order of built-in kinds",
		"6-truncated.json: still too large without bodies":           "the event is shortened, so that a client cannot avoid it by long texts",
	}
}

// isUnsteady reports whether the result of a request depends on timing.
func isUnsteady(name string) bool {
	return name == "request timeout=1ms" // may complete in time
}

// replayFile replays the recordings of a file. before, if set, runs before each of them.
func replayFile(fixture *auditFixture, name string, before func(i int, r *recorded)) {
	knownDifferences := differences()
	for i, r := range recordings(fixture.t, name) {
		if before != nil {
			before(i, &r)
		}
		if r.Client != nil && !isUnsteady(r.Name) {
			fixture.replay(&r, knownDifferences[name+": "+r.Name])
		}
	}
	fixture.checkUnexpected()
}

// TestAuditEventsMatchRecordings replays recordings of kube-apiserver and compares the audit events of each
// request.
func TestAuditEventsMatchRecordings(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	fixture := startAudited(t, nil)
	for _, name := range []string{"1-verbs.json", "2-refusals-and-identities.json", "3-policy-rules.json", "9-apply-json.json"} {
		replayFile(fixture, name, func(_ int, r *recorded) { fixture.stage(name, r) })
	}
	if t.Failed() {
		return
	}
	if !slices.Contains(fixture.metricsLines(), `apiserver_audit_level_total{level="RequestResponse"}`) {
		t.Error("got no metric apiserver_audit_level_total of RequestResponse, want one")
	}
}

// metricsLines returns the first word of each line of the metrics.
func (fixture *auditFixture) metricsLines() (names []string) {
	for line := range strings.Lines(string(fixture.get("/metrics").body)) {
		names = append(names, strings.Fields(line)[0])
	}
	return names
}

// stage creates the objects that the requests of a recording need.
func (fixture *auditFixture) stage(file string, r *recorded) {
	switch file + ": " + r.Name {
	case "2-refusals-and-identities.json: already exists (409)":
		fixture.prepare(201, "POST", "/api/v1/namespaces/a/configmaps?fieldManager=recorder", `{"metadata":{"name":"ex"},"data":{"k":"v"}}`)
	case "2-refusals-and-identities.json: conflict (409)":
		fixture.replace = strings.NewReplacer("<rv-1>", "1")
	}
}
