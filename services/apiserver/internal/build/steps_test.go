package build

import (
	"encoding/json"
	"strings"
	"testing"
)

// step is a request and the expected response. has and lacks check the body.
type step struct {
	what               string
	method, path, body string
	header             []string
	code               int
	has                []string
	lacks              []string
}

// steps sends requests in order and checks each response.
func (a *api) steps(t *testing.T, steps []step) {
	t.Helper()
	for _, s := range steps {
		header := s.header
		if s.method == "PATCH" && header == nil {
			header = []string{"Content-Type", mergePatch}
		}
		answer := a.send(s.method, s.path, s.body, header...)
		if answer.code != s.code {
			t.Errorf("%s: got %d, want %d: %s", s.what, answer.code, s.code, answer.body)
			continue
		}
		var status struct {
			Message string `json:"message"`
		}
		_ = json.Unmarshal(answer.body, &status)
		body := string(answer.body) + "\n" + status.Message
		for _, text := range s.has {
			if !strings.Contains(body, text) {
				t.Errorf("%s: got %s, want it to contain %s", s.what, answer.body, text)
			}
		}
		for _, text := range s.lacks {
			if strings.Contains(body, text) {
				t.Errorf("%s: got %s, want it without %s", s.what, answer.body, text)
			}
		}
	}
}
