package build

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// exchange is a recorded request and response of kube-apiserver 1.33.13. Texts in angle brackets
// replace values that differ between runs. An exchange without a request records another step, for
// example a new encryption configuration.
type exchange struct {
	Name    string
	Request *struct {
		Method, Path, User string
		Headers            map[string]string
		Body               json.RawMessage
	} `json:"client"`
	Response struct {
		Status  int
		Headers map[string]string
		Body    any
	} `json:"answer"`
	Configuration string // the encryption configuration from here on, or ""
}

// readRecording reads the exchanges from a file below testdata. path holds the elements of its path.
func readRecording(t *testing.T, path ...string) (out []exchange) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{"testdata"}, path...)...))
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// replay sends a recorded request and compares the response. header holds additional pairs of a
// header name and its value.
func (api *testServer) replay(t *testing.T, recorded exchange, header ...string) {
	t.Helper()
	body := string(recorded.Request.Body)
	for k, v := range recorded.Request.Headers {
		header = append(header, k, v)
	}
	response := api.send(recorded.Request.Method, recorded.Request.Path, body, header...)
	if response.code != recorded.Response.Status {
		t.Errorf("%s: got status %d, want %d: %s", recorded.Name, response.code, recorded.Response.Status, response.body)
		return
	}
	var got any
	_ = json.Unmarshal(response.body, &got) // got stays nil, which differs from the recording
	if difference := findDifference(got, recorded.Response.Body, ""); difference != "" {
		t.Errorf("%s: the body differs from the recording: %s\ngot body:\n%s", recorded.Name, difference, response.body)
	}
}

// maskRevisions makes messages with different revisions equal: "revision=71" -> "revision=N".
func maskRevisions(message string) string {
	return revisionPattern.ReplaceAllString(message, "revision=N")
}

var revisionPattern = regexp.MustCompile(`revision=[1-9][0-9]*`)

// findDifference compares a JSON value with the recorded one. It returns a description of the first
// difference, or "" if there is none. path is the path of the value, for example ".items[0].kind".
func findDifference(got, want any, path string) string {
	switch want := want.(type) {
	case string:
		if strings.HasPrefix(want, "<") && strings.HasSuffix(want, ">") { // differs between runs
			if got == nil {
				return path + " is missing"
			}
			return ""
		}
		text, _ := got.(string)
		if maskRevisions(text) == maskRevisions(want) {
			return ""
		}
	case map[string]any:
		fields, ok := got.(map[string]any)
		if !ok {
			break
		}
		for name, value := range want {
			if difference := findDifference(fields[name], value, path+"."+name); difference != "" {
				return difference
			}
		}
		for name := range fields {
			if _, ok := want[name]; !ok {
				return fmt.Sprintf("%s.%s is not in the recording", path, name)
			}
		}
		return ""
	case []any:
		elements, ok := got.([]any)
		if !ok || len(elements) != len(want) {
			break
		}
		for i := range want {
			if difference := findDifference(elements[i], want[i], fmt.Sprintf("%s[%d]", path, i)); difference != "" {
				return difference
			}
		}
		return ""
	default:
		if reflect.DeepEqual(got, want) {
			return ""
		}
	}
	gotJSON, _ := json.Marshal(got)
	wantJSON, _ := json.Marshal(want)
	return fmt.Sprintf("%s: got %s, want %s", path, gotJSON, wantJSON)
}

// recordedMetric is a metric with its samples.
type recordedMetric struct {
	Name, Type string
	Samples    []string
}

// readRecordedMetrics returns the encryption metrics of kube-apiserver.
func readRecordedMetrics(t *testing.T) (out []recordedMetric) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "encryption", "metrics.json"))
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}
