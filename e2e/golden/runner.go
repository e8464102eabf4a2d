package golden

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

const (
	requestTimeout = 70 * time.Second
	retryInterval  = 100 * time.Millisecond
	watchTime      = 3 * time.Second
	maxNamespace   = 60
)

// Runner sends the requests of cases to a server. It may run several cases concurrently, except
// cases with the same fixed bootstrap token IDs.
type Runner struct {
	// Server is the base URL. Its certificate is not verified.
	Server string
	// Skip is a field name to ignore in all comparisons.
	Skip string

	admin, anonymous *http.Client
}

// NewRunner returns a runner with a client certificate of a user in system:masters, which it needs
// to create namespaces and impersonate users.
func NewRunner(server string, admin tls.Certificate) *Runner {
	return &Runner{Server: server, admin: newClient(admin), anonymous: newClient()}
}

// newClient returns a client that sends the certificates and does not verify the server.
func newClient(certs ...tls.Certificate) *http.Client {
	return &http.Client{Timeout: requestTimeout, Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, Certificates: certs},
		ForceAttemptHTTP2: true, DisableCompression: true,
	}}
}

// Result is the result of one step.
type Result struct {
	Case *Case
	Step int // from 1
	Got  Response
	// Differences is empty if the step is identical.
	Differences []string
	// Equivalent reports whether at most the wording of messages differs.
	Equivalent bool
}

// Request returns the step's request as written.
func (r Result) Request() string { return r.Case.Steps[r.Step-1].Request }

// Run replays a case and compares each response with the wanted one, if it exists.
func (r *Runner) Run(testCase *Case) ([]Result, error) {
	vars := map[string]string{"ns": namespaceFor(testCase)}
	if err := r.createNamespace(vars["ns"]); err != nil {
		return nil, err
	}
	defer r.deleteNamespace(vars["ns"])
	var results []Result
	for i, step := range testCase.Steps {
		var want *Response
		if testCase.Want != nil {
			want = &testCase.Want[i]
		}
		got, err := r.sendStep(step, vars, want)
		res := Result{Case: testCase, Step: i + 1, Got: got}
		switch {
		case err != nil:
			res.Differences = []string{err.Error()}
		case want != nil:
			res.Differences = differences(*want, got, r.Skip)
			res.Equivalent = onlyWording(res.Differences)
		}
		results = append(results, res)
	}
	return results, nil
}

// namespaceFor returns the namespace of a case: its name without characters that a namespace cannot
// have.
func namespaceFor(testCase *Case) string {
	name := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, testCase.File), "-")
	name = fmt.Sprintf("g-%s-%x", name, rand.Int32())
	if len(name) > maxNamespace {
		name = strings.TrimLeft(name[len(name)-maxNamespace:], "-")
	}
	return name
}

// createNamespace creates a namespace with a service account "default".
func (r *Runner) createNamespace(name string) error {
	namespace := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name)
	if err := r.create("/api/v1/namespaces", namespace); err != nil {
		return err
	}
	return r.create("/api/v1/namespaces/"+name+"/serviceaccounts",
		`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`)
}

// create creates an object. path is the path of the collection.
func (r *Runner) create(path, object string) error {
	resp, body, err := r.send(r.admin, http.MethodPost, path, map[string]string{"Content-Type": "application/json"}, object)
	if err == nil && resp.StatusCode != http.StatusCreated {
		err = fmt.Errorf("create in %s: %s: %s", path, resp.Status, body)
	}
	return err
}

// deleteNamespace deletes a case's namespace. Without a namespace controller it stays in phase
// Terminating.
func (r *Runner) deleteNamespace(ns string) {
	_, _, _ = r.send(r.admin, http.MethodDelete, "/api/v1/namespaces/"+ns, nil, "")
}

// expandVariables replaces each {name} by the value of the variable.
func expandVariables(text string, vars map[string]string) string {
	for k, v := range vars {
		text = strings.ReplaceAll(text, "{"+k+"}", v)
	}
	return text
}

// httpRequest is a step's request after substitution. A header with several values joins them with
// NUL bytes.
type httpRequest struct {
	client       *http.Client
	method, path string
	header       map[string]string
	body         string
}

// requestOf returns the request of a step, with variables expanded.
func (r *Runner) requestOf(step Step, vars map[string]string) (httpRequest, error) {
	result := httpRequest{client: r.admin, body: step.Body, header: map[string]string{"Accept": "application/json"}}
	result.method, result.path, _ = strings.Cut(step.Request, " ")
	result.path = expandVariables(result.path, vars)
	if step.JSON != nil {
		b, err := json.Marshal(step.JSON)
		if err != nil {
			return result, err
		}
		result.body = string(b)
	}
	result.body = expandVariables(result.body, vars)
	if result.body != "" {
		result.header["Content-Type"] = "application/json"
	}
	for k, v := range step.Headers {
		result.header[k] = expandVariables(v, vars)
	}
	if step.As != nil {
		result.header["Impersonate-User"] = expandVariables(step.As.User, vars)
		if len(step.As.Groups) > 0 {
			result.header["Impersonate-Group"] = expandVariables(strings.Join(step.As.Groups, "\x00"), vars)
		}
	}
	if step.Anon || step.Token != "" {
		result.client = r.anonymous
	}
	if step.Token != "" {
		result.header["Authorization"] = "Bearer " + expandVariables(step.Token, vars)
	}
	return result, nil
}

// sendStep sends the request of a step. If the step allows retries, it repeats the request until
// the status is the wanted one.
func (r *Runner) sendStep(step Step, vars map[string]string, want *Response) (Response, error) {
	if d, err := time.ParseDuration(step.Sleep); err == nil {
		<-time.After(d)
	}
	request, err := r.requestOf(step, vars)
	if err != nil {
		return Response{}, err
	}
	limit, _ := time.ParseDuration(step.Retry) // empty is 0: no retry
	wanted := step.Until
	if want != nil {
		wanted = want.Status
	}
	for start := time.Now(); ; <-time.After(retryInterval) {
		response, raw, err := r.sendOnce(request, step, vars)
		again := time.Since(start) < limit
		if again && (err != nil || response.Status != wanted) {
			continue
		}
		if err == nil {
			saveVariables(step, raw, vars)
		}
		return response, err
	}
}

// sendOnce sends the request of a step once. It returns the compared response and, unless the step
// is a watch, the whole body.
func (r *Runner) sendOnce(request httpRequest, step Step, vars map[string]string) (Response, []byte, error) {
	if step.Watch != nil {
		response, err := r.readWatch(request, step, vars)
		return response, nil, err
	}
	resp, raw, err := r.send(request.client, request.method, request.path, request.header, request.body)
	if err != nil {
		return Response{}, nil, err
	}
	return newResponse(step, resp, raw, vars), raw, nil
}

// saveVariables stores the values of a response that later steps refer to.
func saveVariables(step Step, raw []byte, vars map[string]string) {
	var tree any
	if json.Unmarshal(raw, &tree) != nil {
		return
	}
	for name, path := range step.Save {
		if value := valueAt(tree, strings.Split(path, ".")); value != nil {
			vars[name] = fmt.Sprint(value)
		}
	}
}

func (r *Runner) newRequest(method, path string, header map[string]string, body string) (*http.Request, error) {
	req, err := http.NewRequest(method, r.Server+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		for value := range strings.SplitSeq(v, "\x00") {
			req.Header.Add(k, value)
		}
	}
	return req, nil
}

func (r *Runner) send(client *http.Client, method, path string, header map[string]string,
	body string) (*http.Response, []byte, error) {
	req, err := r.newRequest(method, path, header, body)
	if err != nil {
		return nil, nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp, b, err
}

// readWatch returns the events of a watch. It stops after the number of events or the time that the
// step allows.
func (r *Runner) readWatch(request httpRequest, step Step, vars map[string]string) (Response, error) {
	limit, err := time.ParseDuration(step.Watch.For)
	if err != nil {
		limit = watchTime
	}
	req, err := r.newRequest(request.method, request.path, request.header, "")
	if err != nil {
		return Response{}, err
	}
	resp, err := request.client.Do(req)
	if err != nil {
		return Response{}, err
	}
	timer := time.AfterFunc(limit, func() { _ = resp.Body.Close() })
	defer timer.Stop()
	defer resp.Body.Close()
	var events []any
	dec := json.NewDecoder(resp.Body)
	for step.Watch.Events == 0 || len(events) < step.Watch.Events {
		var e any
		if dec.Decode(&e) != nil {
			break // end of the stream or of the time limit
		}
		events = append(events, e)
	}
	raw, err := json.Marshal(events)
	if err != nil {
		return Response{}, err
	}
	return newResponse(step, resp, raw, vars), nil
}
