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
	for _, s := range steps {
		header := s.header
		if s.method == "PATCH" && header == nil {
			header = []string{"Content-Type", mergePatch}
		}
		response := api.send(s.method, s.path, s.body, header...)
		if response.code != s.code {
			t.Errorf("%s: got %d, want %d: %s", s.name, response.code, s.code, response.body)
			continue
		}
		var status struct {
			Message string `json:"message"`
		}
		_ = json.Unmarshal(response.body, &status)
		body := string(response.body) + "\n" + status.Message
		for _, text := range s.has {
			if !strings.Contains(body, text) {
				t.Errorf("%s: got %s, want it to contain %s", s.name, response.body, text)
			}
		}
		for _, text := range s.lacks {
			if strings.Contains(body, text) {
				t.Errorf("%s: got %s, want it without %s", s.name, response.body, text)
			}
		}
	}
}
