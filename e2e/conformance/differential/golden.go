package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"binnacle/e2e/conformance/comparison"
)

// goldenCase is a golden scenario, as e2e/golden defines it.
type goldenCase struct {
	file  string
	Steps []goldenStep `json:"steps"`
	want  []goldenAnswer
}

type goldenStep struct {
	Name    string            `json:"name"`
	Request string            `json:"request"`
	As      *goldenUser       `json:"as"`
	Anon    bool              `json:"anonymous"`
	Token   string            `json:"token"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
	JSON    any               `json:"json"`
	Save    map[string]string `json:"save"`
	Watch   any               `json:"watch"`
	Retry   string            `json:"retry"`
	Sleep   string            `json:"sleep"`
}

type goldenUser struct {
	User   string   `json:"user"`
	Groups []string `json:"groups"`
}

type goldenAnswer struct {
	Status int `json:"status"`
}

// goldenRetry limits the repetition of a step. It is short, because a scenario may run alone.
const goldenRetry = 5 * time.Second

// loadGolden reads the golden scenarios of a folder.
func loadGolden(dir string) ([]goldenCase, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var cases []goldenCase
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		c := goldenCase{file: strings.TrimSuffix(filepath.Base(f), ".yaml")}
		if err := yaml.Unmarshal(text, &c); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		if text, err = os.ReadFile(strings.TrimSuffix(f, ".yaml") + ".want.json"); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &c.want); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		cases = append(cases, c)
	}
	return cases, nil
}

// scenario returns the case as steps for both servers.
func (c goldenCase) scenario() *comparison.Scenario {
	out := &comparison.Scenario{Name: "golden " + c.file, Steps: comparison.NamespaceSteps(), Shared: goldenShared(c.file)}
	for i, g := range c.Steps {
		s := comparison.Step{Label: g.Name, Header: map[string]string{}, Text: g.Body, Save: g.Save, Encoding: comparison.JSONBody}
		if g.Retry != "" {
			want := c.want[i].Status
			s.Until, s.RetryFor = func(status int, _ any) bool { return status == want }, goldenRetry
		}
		s.Method, s.Path, _ = strings.Cut(g.Request, " ")
		if g.JSON != nil {
			s.Object = comparison.RoundTrip(g.JSON)
		} else if g.Body != "" {
			s.Header["Content-Type"] = "application/json"
		}
		for k, v := range g.Headers {
			s.Header[k] = v
		}
		if g.As != nil {
			s.Header["Impersonate-User"] = g.As.User
			if len(g.As.Groups) > 0 {
				s.Header["Impersonate-Group"] = strings.Join(g.As.Groups, "\x00")
			}
		}
		if g.Anon {
			s.Header["Authorization"] = ""
		}
		if g.Token != "" {
			s.Header["Authorization"] = "Bearer " + g.Token
		}
		s.RetryUntilEqual = (out.Shared || g.As != nil) && s.Method == http.MethodGet && g.Watch == nil
		if g.Watch != nil {
			s = s.Query("timeoutSeconds=2")
		}
		out.Steps = append(out.Steps, s)
	}
	return out
}

// configuresAdmission reports whether a case writes webhooks or policies.
func (c goldenCase) configuresAdmission() bool {
	return slices.ContainsFunc(c.Steps, func(s goldenStep) bool {
		return !strings.HasPrefix(s.Request, "GET") && strings.Contains(s.Request, "/apis/admissionregistration.k8s.io/")
	})
}

// sleeps reports whether a case waits for controllers for a fixed time, in which those of the
// servers race.
func (c goldenCase) sleeps() bool {
	return slices.ContainsFunc(c.Steps, func(s goldenStep) bool { return s.Sleep != "" })
}

// goldenShared reports whether a case affects requests of other scenarios.
func goldenShared(file string) bool {
	return strings.HasPrefix(file, "policy-") || strings.HasPrefix(file, "admission-") || strings.HasPrefix(file, "crd-") ||
		strings.HasPrefix(file, "discovery") || strings.Contains(file, "priorityclass") || strings.Contains(file, "flow")
}
