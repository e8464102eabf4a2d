package reviews

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// pluginsKnown are exchanges with plugins that differ, with the reason.
var pluginsKnown = map[string]string{}

// TestPlugins replays exchanges with admission plugins that are disabled by default. The plugin
// EventRateLimit is left out because it depends on the time between requests; unit tests cover it.
func TestPlugins(t *testing.T) {
	exchanges, files, flags := pluginsFile(t, "off-by-default.json")
	p := newPlayer(t, files, append(flags,
		"--admission-control-config-file=<dir>/admission.yaml", "--feature-gates=PodTopologyLabelsAdmission=true,ClusterTrustBundle=true",
		"--runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true")...)
	asIs := p.hooks.next
	p.hooks.next = func(c Call) CallAnswer {
		a := asIs(c)
		if a.Body == "no script" { // the response was cached during the recording
			return CallAnswer{Body: map[string]any{"status": map[string]any{"allowed": true}}}
		}
		return a
	}
	for i, e := range exchanges {
		name := fmt.Sprintf("%d %s", i+1, e.Name)
		for _, s := range e.Setup {
			if status, _, got := p.sendRequest(&s); status >= http.StatusMultipleChoices {
				t.Errorf("%s: setup %s: %d %s", name, s.Path, status, text(got))
			}
		}
		if strings.HasPrefix(e.Name, "EventRateLimit") {
			continue
		}
		diff := p.diffExchange(e)
		for _, a := range e.After {
			diff = append(diff, p.diffExchange(&a)...)
		}
		why := pluginsKnown[name]
		switch {
		case why == "" && len(diff) > 0:
			t.Errorf("%s:\n\t%s", name, strings.Join(diff, "\n\t"))
		case why != "" && len(diff) == 0:
			t.Errorf("%s agrees with the recording; remove the known difference: %s", name, why)
		}
	}
}

// pluginsFile reads the exchanges and their common configuration.
func pluginsFile(t *testing.T, name string) (exchanges []*Exchange, files map[string]string, flags []string) {
	t.Helper()
	var first []struct {
		Admission string   `json:"--admission-control-config-file"`
		Limits    string   `json:"erl.yaml"`
		Selectors string   `json:"pns.yaml"`
		Enabled   []string `json:"plugins enabled besides the defaults"`
	}
	path := filepath.Join("testdata", "plugins", name)
	if err := load(path, &first); err != nil {
		t.Fatal(err)
	}
	exchanges, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	// Responses are not cached, so that the speed of the replay does not matter.
	config := strings.ReplaceAll(strings.ReplaceAll(first[0].Admission, "allowTTL: 1", "allowTTL: -1"), "denyTTL: 1", "denyTTL: -1")
	files = map[string]string{
		"admission.yaml": config, "erl.yaml": first[0].Limits, "pns.yaml": first[0].Selectors,
		"ip.kubeconfig": "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:<hook>/image', insecure-skip-tls-verify: true}}]\ncontexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n",
	}
	return exchanges[1:], files, []string{"--enable-admission-plugins=" + strings.Join(first[0].Enabled, ",")}
}

// diffExchange replays one exchange and returns the differences.
func (p *player) diffExchange(e *Exchange) (diff []string) {
	request := *e.Client
	values := map[string]string{"<PEM>": p.pem}
	request.Body = fill(request.Body, values)
	p.hooks.Play(e.Calls)
	status, headers, body := p.sendRequest(&request)
	if len(e.Calls) > 0 {
		calls := p.hooks.Calls()
		if len(calls) != len(e.Calls) {
			diff = append(diff, fmt.Sprintf("calls: want %d, got %d", len(e.Calls), len(calls)))
		} else {
			for i := range calls {
				diff = append(diff, differences("call", e.Calls[i].Path, calls[i].Path)...)
				diff = append(diff, differences("call", normalized(generic(e.Calls[i].Body), nil), normalized(calls[i].Body, nil))...)
			}
		}
	}
	if text(e.Answer.Status) != text(status) {
		return append(diff, fmt.Sprintf("status: want %v, got %d: %.900s", e.Answer.Status, status, text(body)))
	}
	if w, ok := e.Answer.Headers["Warning"]; ok {
		diff = append(diff, differences("Warning", w, any(headers.Get("Warning")))...)
	}
	return append(diff, differences("body", normalized(generic(e.Answer.Body), nil), normalized(body, map[string]string{"<PEM>": p.pem}))...)
}
