package reviews

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"binnacle/e2e/harness"
)

const (
	apiServices     = "/apis/apiregistration.k8s.io/v1/apiservices"
	aggregatedMedia = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

// aggregationFlags are the flags of the recorder's server.
var aggregationFlags = []string{
	"--requestheader-allowed-names=front-proxy-client", "--requestheader-username-headers=X-Remote-User",
	"--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
}

// aggregation replays exchanges with aggregated APIs.
type aggregation struct {
	*player
	ext       *Extension
	anonymous *http.Client
	token     string // bearer token of a service account with the rights of an administrator
	// ownResponses holds the responses of the extension server, by path, to requests that the API
	// server sends unasked, such as for discovery.
	ownResponses map[string]proxiedResponse
}

// loadExchanges reads a file in testdata/aggregation.
func loadExchanges(t *testing.T, file string) (out []*AggregatedExchange) {
	t.Helper()
	if err := loadJSON(filepath.Join("testdata", "aggregation", file), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// Arguments of newAggregation.
const proxied, direct = true, false

// newAggregation starts the servers that the recorder used. If isProxied is true, the API server
// forwards the user of a request to extension servers, with a client certificate of its own.
func newAggregation(t *testing.T, isProxied bool, flags ...string) *aggregation {
	t.Helper()
	pki := harness.NewPKI(t)
	if isProxied {
		proxy := pki.Client("front-proxy-client")
		flags = append(flags, "--requestheader-client-ca-file="+pki.CA, "--proxy-client-cert-file="+proxy.CertFile,
			"--proxy-client-key-file="+proxy.KeyFile)
		flags = append(flags, aggregationFlags...)
	}
	started := &aggregation{player: newPlayerWithPKI(t, pki, nil, flags), ownResponses: map[string]proxiedResponse{}}
	started.ext = StartExtension(t, Certificate(t, pki.ServingFor("ext", "ext.agg.svc")))
	started.values["<ext>"] = started.ext.Port
	started.values["<ext-wrong-name>"] = started.ext.AddListener(t, Certificate(t, pki.ServingFor("other", "wrong.example")))
	started.values["<hook-unknown-ca>"] = started.ext.AddListener(t, Certificate(t, harness.NewPKI(t).ServingFor("ext", "ext.agg.svc")))
	started.values["<plain>"] = started.ext.AddListener(t, tls.Certificate{})
	started.anonymous = &http.Client{
		Timeout:   30 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	t.Cleanup(started.anonymous.CloseIdleConnections)
	started.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	started.mustRequest("POST", "/api/v1/namespaces/agg/services",
		`{"metadata":{"name":"ext"},"spec":{"type":"ExternalName","externalName":"localhost"}}`)
	started.mustRequest("DELETE", "/api/v1/namespaces/agg/services/cip", `{}`)
	started.mustRequest("POST", "/api/v1/namespaces/agg/services",
		`{"metadata":{"name":"cip"},"spec":{"ports":[{"name":"https","port":443}]}}`)
	started.mustRequest("POST", "/api/v1/namespaces/agg/serviceaccounts", `{"metadata":{"name":"s"}}`)
	started.mustRequest("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		`{"metadata":{"name":"s"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"kind":"ServiceAccount","name":"s","namespace":"agg"}]}`)
	_, _, token := started.sendRequest(&ClientRequest{
		Method: "POST",
		Path:   "/api/v1/namespaces/agg/serviceaccounts/s/token",
		Body:   map[string]any{},
	})
	started.token, _ = token.(map[string]any)["status"].(map[string]any)["token"].(string)
	recorded := loadExchanges(t, "1-registration.json")
	for _, e := range recorded {
		for _, c := range e.Calls {
			started.ownResponses[c.Path] = c.recordedResponse()
		}
	}
	for _, c := range recorded[1].Within4 {
		started.ownResponses[c.Path] = c.recordedResponse()
	}
	return started
}

// sendAsRecorder sends a request as the recorder did. It splits a body of several JSON values into
// lines.
func (a *aggregation) sendAsRecorder(clientRequest *ClientRequest, anonymous bool) (int, http.Header, any) {
	a.t.Helper()
	var body io.Reader
	if clientRequest.Body != nil {
		body = bytes.NewReader([]byte(jsonText(fillPlaceholders(clientRequest.Body, a.values))))
	}
	r, err := http.NewRequest(clientRequest.Method, a.server.URL+clientRequest.Path, body)
	if err != nil {
		a.t.Fatal(err)
	}
	r.Header = http.Header{"User-Agent": {"recorder"}, "Accept": {"application/json"}, "Accept-Encoding": {"identity"}}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for k, v := range clientRequest.Headers {
		r.Header.Set(k, v)
	}
	client := a.client
	if u, ok := clientRequest.User.(string); ok || anonymous {
		client = a.anonymous
		token, isToken := strings.CutPrefix(u, "token:")
		switch {
		case isToken:
			r.Header.Set("Authorization", "Bearer "+token)
		case u != "":
			r.Header.Set("Authorization", "Bearer "+a.token)
		}
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, nil, err.Error()
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, err.Error()
	}
	var tree any
	if json.Unmarshal(raw, &tree) == nil {
		return resp.StatusCode, resp.Header, tree
	}
	var lines []any
	for _, line := range strings.Split(strings.TrimSpace(string(raw)), "\n") {
		var one any
		if json.Unmarshal([]byte(line), &one) != nil {
			return resp.StatusCode, resp.Header, string(raw)
		}
		lines = append(lines, one)
	}
	return resp.StatusCode, resp.Header, map[string]any{"lines": lines}
}

// portNames returns the recorded names of ports with their values.
func (a *aggregation) portNames() map[string]string {
	out := map[string]string{}
	for name, v := range a.values {
		if name != "<base64>" && name != "<dir>" {
			out[name] = v
		}
	}
	return out
}

// diffValues returns the differences between two values, with ports replaced by their recorded
// names.
func (a *aggregation) diffValues(at string, want, got any) []string {
	return differences(at, replaceVariableValues(toGenericJSON(want), a.portNames()),
		replaceVariableValues(toGenericJSON(got), a.portNames()))
}

// diffResponse returns the differences between a response and the recorded one.
func (a *aggregation) diffResponse(at string, want *Response, status int, headers http.Header, body any) (diff []string) {
	if jsonText(want.Status) != jsonText(status) {
		return []string{fmt.Sprintf("%s: want %v, got %d %.600s", at, want.Status, status, jsonText(body))}
	}
	for k, v := range want.Headers {
		if k != "Transfer-Encoding" { // absent in HTTP/2
			diff = append(diff, a.diffValues(at+" header "+k, v, headers.Get(k))...)
		}
	}
	if want.Body != nil && !(want.Body == "" && body == "") {
		diff = append(diff, a.diffValues(at+" body", want.Body, body)...)
	}
	return diff
}

// createAPIService creates the APIService of an exchange and waits until its status is the given
// one. It returns the differences from that status after 30 seconds.
func (a *aggregation) createAPIService(client *ClientRequest, status any) (name string, diff []string) {
	a.t.Helper()
	code, _, body := a.sendAsRecorder(client, false)
	if code != http.StatusCreated {
		a.t.Fatalf("got %d %s, want %d", code, jsonText(body), http.StatusCreated)
	}
	name = body.(map[string]any)["metadata"].(map[string]any)["name"].(string)
	deadline := time.Now().Add(30 * time.Second)
	for {
		_, _, now := a.sendRequest(&ClientRequest{Method: "GET", Path: apiServices + "/" + name})
		diff = a.diffValues("status", status, now.(map[string]any)["status"])
		if len(diff) == 0 || time.Now().After(deadline) {
			return name, diff
		}
		time.Sleep(20 * time.Millisecond) // polling interval
	}
}

// deleteAPIService deletes an APIService, if it exists.
func (a *aggregation) deleteAPIService(name string) {
	a.sendRequest(&ClientRequest{Method: "DELETE", Path: apiServices + "/" + name})
}

// TestProxiedRequestsMatchRecordings replays requests that are proxied to an extension server.
func TestProxiedRequestsMatchRecordings(t *testing.T) {
	aggregation := newAggregation(t, proxied)
	first := loadExchanges(t, "1-registration.json")[1]
	aggregation.ext.Play(aggregation.ownResponses)
	_, diff := aggregation.createAPIService(first.Client, first.Status)
	if len(diff) > 0 {
		t.Fatal(diff)
	}
	for _, exchange := range loadExchanges(t, "2-proxied-requests.json") {
		t.Run(exchange.Name, func(t *testing.T) {
			aggregation.ext.Play(aggregation.ownResponses, exchange.Calls...)
			if exchange.Client.Method == "" {
				t.Fatal("no recorded request")
			}
			for _, d := range append(aggregation.diffProxiedRequest(exchange), aggregation.diffUpstreamRequests(exchange)...) {
				t.Error(d)
			}
		})
	}
}

// diffProxiedRequest replays a request that is proxied, and returns the differences from the
// recorded response.
func (a *aggregation) diffProxiedRequest(exchange *AggregatedExchange) []string {
	if exchange.RawResponse != "" {
		return a.diffRawResponse(exchange)
	}
	var want Response
	if err := json.Unmarshal(exchange.Response, &want); err != nil {
		return []string{err.Error()}
	}
	if recorded, ok := want.Body.(map[string]any); ok && recorded["lines"] != nil {
		var stream strings.Builder
		for _, line := range recorded["lines"].([]any) {
			stream.WriteString(jsonText(line) + "\n")
		}
		path, _, _ := strings.Cut(exchange.Client.Path, "?")
		a.ext.Play(map[string]proxiedResponse{path: {
			Headers: map[string]string{"Content-Type": "application/json"},
			Body:    stream.String(),
		}})
	}
	status, headers, body := a.sendAsRecorder(exchange.Client, strings.HasPrefix(exchange.Name, "anonymous"))
	return a.diffResponse("response", &want, status, headers, body)
}

// diffUpstreamRequests returns the differences between the client requests that reached the
// extension server and the recorded ones.
func (a *aggregation) diffUpstreamRequests(exchange *AggregatedExchange) (diff []string) {
	calls := slices.DeleteFunc(a.ext.Calls(), func(c ProxiedCall) bool { return strings.HasSuffix(c.User, "aggregator") })
	if len(calls) != len(exchange.Calls) {
		return []string{fmt.Sprintf("calls: want %d, got %.900s", len(exchange.Calls), jsonText(calls))}
	}
	for i := range calls {
		diff = append(diff, a.diffValues(fmt.Sprintf("call[%d]", i), exchange.Calls[i].comparedParts(), calls[i].comparedParts())...)
	}
	return diff
}

// diffRawResponse sends a request in HTTP/1.1 and compares the whole response on the wire.
func (a *aggregation) diffRawResponse(exchange *AggregatedExchange) []string {
	parsed, err := url.Parse(a.server.URL)
	if err != nil {
		return []string{err.Error()}
	}
	conn, err := tls.Dial("tcp", parsed.Host, &tls.Config{
		InsecureSkipVerify: true,
		Certificates:       []tls.Certificate{Certificate(a.t, a.server.Admin)},
	})
	if err != nil {
		return []string{err.Error()}
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\n", exchange.Client.Method, exchange.Client.Path, parsed.Host)
	for k, v := range exchange.Client.Headers {
		fmt.Fprintf(conn, "%s: %s\r\n", k, v)
	}
	fmt.Fprint(conn, "\r\n")
	reader := bufio.NewReader(conn)
	got, err := http.ReadResponse(reader, nil)
	if err != nil {
		return []string{err.Error()}
	}
	want, err := http.ReadResponse(bufio.NewReader(strings.NewReader(exchange.RawResponse)), nil)
	if err != nil {
		return []string{err.Error()}
	}
	comparedParts := func(resp *http.Response) map[string]any {
		var body []byte
		if resp.StatusCode == http.StatusSwitchingProtocols {
			body = make([]byte, len("hello from ext"))
			_, _ = io.ReadFull(resp.Body, body)
			_, after, _ := strings.Cut(exchange.RawResponse, "\r\n\r\n")
			if resp == got {
				_, _ = io.ReadFull(reader, body)
			} else {
				body = []byte(after)
			}
		} else {
			body, _ = io.ReadAll(resp.Body)
		}
		resp.Header.Del("Date")
		resp.Header.Del("Audit-Id")
		return map[string]any{"status": resp.StatusCode, "headers": resp.Header, "body": string(body)}
	}
	return a.diffValues("response", comparedParts(want), comparedParts(got))
}

// endpointsOf holds, by name of an exchange, a part of the EndpointSlice or Endpoints object that
// existed while it was recorded.
var endpointsOf = map[string]string{
	"endpoint slice without endpoints":           `"endpoints":[],"ports":[{"name":"https","port":8443}]`,
	"endpoint slice with a port of another name": `"endpoints":[{"addresses":["10.9.9.9"]}],"ports":[{"name":"other","port":8443}]`,
	"endpoint slice, endpoint not ready":         `"endpoints":[{"addresses":["10.9.9.9"],"conditions":{"ready":false}}],"ports":[{"name":"https","port":8443}]`,
	"endpoints without subsets":                  ``,
	"endpoints, address not ready":               `{"notReadyAddresses":[{"ip":"10.9.9.9"}],"ports":[{"name":"https","port":8443}]}`,
	"endpoints, port of another name":            `{"addresses":[{"ip":"10.9.9.9"}],"ports":[{"name":"other","port":8443}]}`,
}

// createEndpoints creates the EndpointSlice or Endpoints object that existed while the exchange
// with a name was recorded, if any. remove deletes it.
func (a *aggregation) createEndpoints(name string) (remove func()) {
	at, body := "", ""
	more, ok := endpointsOf[name]
	switch {
	case !ok:
		return func() {}
	case strings.HasPrefix(name, "endpoint slice"):
		at, body = "/apis/discovery.k8s.io/v1/namespaces/agg/endpointslices", `{"metadata":{"name":"cip","labels":{"kubernetes.io/service-name":"cip"}},"addressType":"IPv4",`+more+`}`
	default:
		at, body = "/api/v1/namespaces/agg/endpoints", `{"metadata":{"name":"cip"},"subsets":[`+more+`]}`
	}
	a.mustRequest("POST", at, body)
	return func() { a.sendRequest(&ClientRequest{Method: "DELETE", Path: at + "/cip"}) }
}

// TestAvailabilityMatchesRecordings replays the conditions of APIServices with and without
// reachable servers.
func TestAvailabilityMatchesRecordings(t *testing.T) {
	aggregation := newAggregation(t, proxied)
	for _, file := range []string{"3-availability.json", "7-availability-by-endpoints.json"} {
		for _, e := range loadExchanges(t, file) {
			if e.Client != nil {
				t.Run(e.Name, func(t *testing.T) {
					for _, d := range aggregation.diffAvailability(e) {
						t.Error(d)
					}
				})
			}
		}
	}
}

// discoveryStatus matches the names of recorded exchanges in which discovery returns a status.
var discoveryStatus = regexp.MustCompile(`^discovery answers (\d+)$`)

// diffAvailability replays the registration of an APIService and returns the differences of its
// condition, of the responses to clients, and of the requests to the extension server.
func (a *aggregation) diffAvailability(exchange *AggregatedExchange) (diff []string) {
	responses := map[string]proxiedResponse{}
	for path, response := range a.ownResponses {
		responses[path] = response
	}
	const version = "/apis/ext.test/v1"
	if m := discoveryStatus.FindStringSubmatch(exchange.Name); m != nil {
		code := 0
		fmt.Sscan(m[1], &code)
		responses[version] = proxiedResponse{
			Status:  code,
			Headers: map[string]string{"Content-Type": "text/plain", "Location": "/elsewhere"},
		}
	}
	if exchange.Name == "discovery takes 8 s" {
		slow := responses[version]
		slow.SleepMs = 8000
		responses[version] = slow
	}
	if exchange.Request != nil {
		responses[exchange.Request.Client.Path] = proxiedResponse{
			Headers: map[string]string{"Content-Type": "application/json"},
			Body:    exchange.Request.Response.Body,
		}
	}
	a.ext.Play(responses)
	defer a.createEndpoints(exchange.Name)()
	name, diff := a.createAPIService(exchange.Client, exchange.Status)
	defer a.deleteAPIService(name)
	// Discovery is updated after the condition.
	deadline := time.Now().Add(10 * time.Second)
	for {
		now := a.diffClientResponses(exchange)
		if len(now) == 0 {
			break
		}
		if time.Now().After(deadline) {
			diff = append(diff, now...)
			break
		}
		time.Sleep(20 * time.Millisecond) // polling interval
	}
	recorded := map[string]bool{}
	for _, c := range slices.Concat(exchange.Within1, exchange.Within2, exchange.Within6) {
		recorded[c.String()] = true
	}
	for _, c := range a.ext.Calls() {
		if strings.HasSuffix(c.User, "aggregator") && !recorded[c.String()] {
			diff = append(diff, "the extension server received "+c.String())
		}
	}
	return diff
}

// diffClientResponses returns the differences of the responses to clients: those for the API of the
// extension server and, in discovery, the entries of its group.
func (a *aggregation) diffClientResponses(exchange *AggregatedExchange) (diff []string) {
	for at, x := range map[string]*Exchange{"request": exchange.Request, "resources": exchange.Resources} {
		if x == nil || x.Client.Path == "/version" {
			continue
		}
		status, headers, body := a.sendAsRecorder(x.Client, false)
		diff = append(diff, a.diffResponse(at, &x.Response, status, headers, body)...)
	}
	diffGroupIn := func(want any, accept, list string, named func(map[string]any) any) {
		if want == nil {
			return
		}
		_, _, body := a.sendAsRecorder(&ClientRequest{
			Method:  "GET",
			Path:    "/apis",
			Headers: map[string]string{"Accept": accept},
		}, false)
		all, _ := body.(map[string]any)[list].([]any)
		groups := slices.DeleteFunc(all, func(g any) bool { return named(g.(map[string]any)) != "ext.test" })
		diff = append(diff, a.diffValues(list, want, groups)...)
	}
	diffGroupIn(exchange.AggregatedDiscovery, aggregatedMedia, "items", func(g map[string]any) any {
		return g["metadata"].(map[string]any)["name"]
	})
	diffGroupIn(exchange.GroupList, "application/json", "groups", func(g map[string]any) any { return g["name"] })
	return diff
}

// TestAggregatorRoutingMatchesRecordings replays the exchanges with --enable-aggregator-routing.
func TestAggregatorRoutingMatchesRecordings(t *testing.T) {
	aggregation := newAggregation(t, proxied, "--enable-aggregator-routing")
	aggregation.ext.Play(aggregation.ownResponses)
	for _, exchange := range loadExchanges(t, "5-with-aggregator-routing.json") {
		t.Run(exchange.Name, func(t *testing.T) {
			var diff []string
			if exchange.Status == nil {
				var want Response
				if err := json.Unmarshal(exchange.Response, &want); err != nil {
					t.Fatal(err)
				}
				status, headers, body := aggregation.sendAsRecorder(exchange.Client, false)
				diff = aggregation.diffResponse("response", &want, status, headers, body)
			} else {
				diff = aggregation.diffAvailability(exchange)
			}
			for _, d := range diff {
				t.Error(d)
			}
		})
	}
}

// TestWithoutProxyCertificate replays the requests to an extension server by an API server without
// a proxy client certificate.
func TestWithoutProxyCertificate(t *testing.T) {
	aggregation := newAggregation(t, direct)
	for _, e := range loadExchanges(t, "6-without-proxy-certificate.json") {
		for _, d := range aggregation.diffAvailability(e) {
			t.Error(d)
		}
		aggregation.checkOwnRequests(t, e.Within2)
	}
}
