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
		r := a.send(s.method, s.path, s.body, header...)
		if r.code != s.code {
			t.Errorf("%s: got %d, want %d: %s", s.what, r.code, s.code, r.body)
			continue
		}
		var status struct {
			Message string `json:"message"`
		}
		_ = json.Unmarshal(r.body, &status)
		body := string(r.body) + "\n" + status.Message
		for _, text := range s.has {
			if !strings.Contains(body, text) {
				t.Errorf("%s: got %s, want it to contain %s", s.what, r.body, text)
			}
		}
		for _, text := range s.lacks {
			if strings.Contains(body, text) {
				t.Errorf("%s: got %s, want it without %s", s.what, r.body, text)
			}
		}
	}
}
