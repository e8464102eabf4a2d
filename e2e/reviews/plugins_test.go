package reviews

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// TestOptionalPluginsMatchRecordings replays exchanges with admission plugins that are disabled by
// default. The plugin EventRateLimit is left out because it depends on the time between requests;
// unit tests cover it.
func TestOptionalPluginsMatchRecordings(t *testing.T) {
	exchanges, files, flags := loadPluginExchanges(t, "off-by-default.json")
	player := newPlayer(t, files, append(flags,
		"--admission-control-config-file=<dir>/admission.yaml",
		"--feature-gates=PodTopologyLabelsAdmission=true,ClusterTrustBundle=true",
		"--runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true")...)
	respondAsRecorded := player.hooks.respond
	player.hooks.respond = func(c Call) CallResponse {
		response := respondAsRecorded(c)
		if response.Body == "no script" { // the response was cached during the recording
			return CallResponse{Body: map[string]any{"status": map[string]any{"allowed": true}}}
		}
		return response
	}
	for i, exchange := range exchanges {
		name := fmt.Sprintf("%d %s", i+1, exchange.Name)
		for _, s := range exchange.Setup {
			if status, _, got := player.sendRequest(&s); status >= http.StatusMultipleChoices {
				t.Errorf("%s: setup %s: %d %s", name, s.Path, status, jsonText(got))
			}
		}
		if strings.HasPrefix(exchange.Name, "EventRateLimit") {
			continue // but its setup applies to later exchanges
		}
		diff := player.replayPluginExchange(exchange)
		for _, a := range exchange.After {
			diff = append(diff, player.replayPluginExchange(&a)...)
		}
		if len(diff) > 0 {
			t.Errorf("%s:\n\t%s", name, strings.Join(diff, "\n\t"))
		}
	}
}

// recordingHeader is the first element of a file of exchanges. The other elements are exchanges.
type recordingHeader struct {
	AdmissionConfig string   `json:"--admission-control-config-file"` // the content of the file
	EventRateLimits string   `json:"erl.yaml"`                        // configuration of EventRateLimit
	NodeSelectors   string   `json:"pns.yaml"`                        // configuration of PodNodeSelector
	Plugins         []string `json:"plugins enabled besides the defaults"`
}

// loadPluginExchanges reads a file of exchanges. It also returns the configuration files, by name,
// and the flags of the server that the recorder used.
func loadPluginExchanges(t *testing.T, name string) (exchanges []*Exchange, files map[string]string, flags []string) {
	t.Helper()
	var headers []recordingHeader
	path := filepath.Join("testdata", "plugins", name)
	if err := loadJSON(path, &headers); err != nil {
		t.Fatal(err)
	}
	exchanges, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	// Responses are not cached, so that the speed of the replay does not matter.
	header := headers[0]
	uncached := strings.NewReplacer("allowTTL: 1", "allowTTL: -1", "denyTTL: 1", "denyTTL: -1")
	files = map[string]string{
		"admission.yaml": uncached.Replace(header.AdmissionConfig),
		"erl.yaml":       header.EventRateLimits,
		"pns.yaml":       header.NodeSelectors,
		"ip.kubeconfig":  "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:<hook>/image', insecure-skip-tls-verify: true}}]\ncontexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n",
	}
	return exchanges[1:], files, []string{"--enable-admission-plugins=" + strings.Join(header.Plugins, ",")}
}

// replayPluginExchange replays one exchange of a plugin and returns the differences of the status,
// the body, warnings and calls.
func (p *player) replayPluginExchange(exchange *Exchange) (diff []string) {
	request := *exchange.Client
	values := map[string]string{"<PEM>": p.pem}
	request.Body = fillPlaceholders(request.Body, values)
	p.hooks.Play(exchange.Calls)
	status, headers, body := p.sendRequest(&request)
	if len(exchange.Calls) > 0 {
		calls := p.hooks.Calls()
		if len(calls) != len(exchange.Calls) {
			diff = append(diff, fmt.Sprintf("calls: got %d, want %d", len(calls), len(exchange.Calls)))
		} else {
			for i := range calls {
				diff = append(diff, differences("call", exchange.Calls[i].Path, calls[i].Path)...)
				diff = append(diff, differences("call", replaceVariableValues(toGenericJSON(exchange.Calls[i].Body), nil),
					replaceVariableValues(calls[i].Body, nil))...)
			}
		}
	}
	if jsonText(exchange.Response.Status) != jsonText(status) {
		return append(diff, fmt.Sprintf("status: got %d, want %v: %.900s", status, exchange.Response.Status, jsonText(body)))
	}
	if w, ok := exchange.Response.Headers["Warning"]; ok {
		diff = append(diff, differences("Warning", w, any(headers.Get("Warning")))...)
	}
	return append(diff, differences("body", replaceVariableValues(toGenericJSON(exchange.Response.Body), nil),
		replaceVariableValues(body, map[string]string{"<PEM>": p.pem}))...)
}
