package build

import (
	"encoding/json"
	"strings"
	"testing"
)

// step is a request and the expected response. has and lacks check the body.
type step struct {
	name               string
	method, path, body string
	header             []string
	code               int
	has                []string
	lacks              []string
}

// steps sends requests in order and checks each response.
func (api *testServer) steps(t *testing.T, steps []step) {
	t.Helper()
	for _, current := range steps {
		header := current.header
		if current.method == "PATCH" && header == nil {
			header = []string{"Content-Type", mergePatch}
		}
		response := api.send(current.method, current.path, current.body, header...)
		if response.code != current.code {
			t.Errorf("%s: got %d, want %d: %s", current.name, response.code, current.code, response.body)
			continue
		}
		var status struct {
			Message string `json:"message"`
		}
		_ = json.Unmarshal(response.body, &status)
		body := string(response.body) + "\n" + status.Message
		for _, text := range current.has {
			if !strings.Contains(body, text) {
				t.Errorf("%s: got %s, want it to contain %s", current.name, response.body, text)
			}
		}
		for _, text := range current.lacks {
			if strings.Contains(body, text) {
				t.Errorf("%s: got %s, want it without %s", current.name, response.body, text)
			}
		}
	}
}
