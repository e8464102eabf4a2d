package golden

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"

	"gopkg.in/yaml.v3"
)

// Case is one conversation. Every case runs in its own namespace, {ns}. The namespace is created
// with a service account "default" before the first step and deleted without waiting after the
// last. Names of cluster-scoped objects begin with {ns}, so that cases can run concurrently.
type Case struct {
	Name  string `yaml:"name"`
	Area  string `yaml:"area"` // the area of the tally
	Steps []Step `yaml:"steps"`

	File string     `yaml:"-"` // base name without suffix
	Want []Response `yaml:"-"` // one response per step
	path string
}

// Step is one request. {ns} and saved variables are substituted in Request,
// Headers and Body.
type Step struct {
	Name    string            `yaml:"name"`
	Request string            `yaml:"request"` // "METHOD /path?query"
	As      *User             `yaml:"as"`      // impersonated user; nil: the user of the client certificate
	Anon    bool              `yaml:"anonymous"`
	Token   string            `yaml:"token"`   // bearer token (usually "{saved}"); no client certificate
	Headers map[string]string `yaml:"headers"` // Accept and Content-Type default to application/json
	Body    string            `yaml:"body"`    // raw body
	JSON    any               `yaml:"json"`    // body given as YAML, sent as JSON
	Save    map[string]string `yaml:"save"`    // variable: dotted path in the JSON response
	Watch   *Watch            `yaml:"watch"`   // read a stream instead of one response
	Retry   string            `yaml:"retry"`   // repeat until the wanted status is returned, for at most this duration
	Until   int               `yaml:"until"`   // the status to wait for while recording with retry
	Ignore  []string          `yaml:"ignore"`  // dotted paths dropped before comparing; * matches any key or index
	Only    []string          `yaml:"only"`    // compare only these dotted paths
	NoBody  bool              `yaml:"nobody"`  // compare only status and headers
	Show    []string          `yaml:"show"`    // further response headers to compare
	Sleep   string            `yaml:"sleep"`   // wait before the request
}

// User is the impersonated user of a step.
type User struct {
	User   string   `yaml:"user"`
	Groups []string `yaml:"groups"`
}

// Watch limits how long a stream is read.
type Watch struct {
	Events int    `yaml:"events"` // stop after this many events
	For    string `yaml:"for"`    // or after this duration
}

// Response is the part of an HTTP response that is recorded and compared.
type Response struct {
	Status  int                 `json:"status"`
	Headers map[string][]string `json:"headers,omitempty"`
	Body    any                 `json:"body,omitempty"`
}

// Load reads the cases in paths whose file names match. Each path is a case file or a folder.
// Wanted responses are not read when recording.
func Load(paths []string, match *regexp.Regexp, recording bool) ([]*Case, error) {
	var files []string
	for _, p := range paths {
		st, err := os.Stat(p)
		if err != nil {
			return nil, err
		}
		if !st.IsDir() {
			files = append(files, p)
			continue
		}
		found, err := filepath.Glob(filepath.Join(p, "*.yaml"))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	sort.Strings(files)
	var cases []*Case
	for _, f := range files {
		if match != nil && !match.MatchString(filepath.Base(f)) {
			continue
		}
		c, err := loadCase(f, recording)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		cases = append(cases, c)
	}
	return cases, nil
}

// loadCase reads a case and, unless recording, its wanted responses.
func loadCase(file string, recording bool) (*Case, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	loaded := &Case{path: strings.TrimSuffix(file, ".yaml")}
	loaded.File = filepath.Base(loaded.path)
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(loaded); err != nil {
		return nil, err
	}
	if recording {
		return loaded, nil
	}
	if raw, err = os.ReadFile(loaded.path + ".want.json"); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &loaded.Want); err != nil {
		return nil, err
	}
	if len(loaded.Want) != len(loaded.Steps) {
		return nil, fmt.Errorf("got %d wanted responses for %d steps", len(loaded.Want), len(loaded.Steps))
	}
	return loaded, nil
}

// Save writes the wanted responses to NAME.want.json beside the case.
func (c *Case) Save() error {
	b, err := json.MarshalIndent(c.Want, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(c.path+".want.json", append(b, '\n'), 0o644)
}
