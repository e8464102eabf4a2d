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
// replace values that differ between runs.
type exchange struct {
	Name   string
	Client *struct {
		Method, Path, User string
		Headers            map[string]string
		Body               json.RawMessage
	}
	Answer struct {
		Status  int
		Headers map[string]string
		Body    any
	}
	Configuration string
}

func recording(t *testing.T, path ...string) (out []exchange) {
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

// replay sends a recorded request and compares the response. header holds additional header pairs.
func (a *api) replay(t *testing.T, x exchange, header ...string) {
	t.Helper()
	body := string(x.Client.Body)
	for k, v := range x.Client.Headers {
		header = append(header, k, v)
	}
	got := a.send(x.Client.Method, x.Client.Path, body, header...)
	var is any
	_ = json.Unmarshal(got.body, &is)
	if got.code != x.Answer.Status {
		t.Errorf("%s: got status %d, want the recorded %d: %s", x.Name, got.code, x.Answer.Status, got.body)
		return
	}
	if where := differs(is, x.Answer.Body, ""); where != "" {
		t.Errorf("%s: got another body than recorded, want no difference: %s\n%s", x.Name, where, got.body)
	}
}

var revisions = regexp.MustCompile(`revision=[1-9][0-9]*`)

// differs returns where a value differs from the recording.
func differs(is, want any, at string) string {
	switch want := want.(type) {
	case string:
		if strings.HasPrefix(want, "<") && strings.HasSuffix(want, ">") {
			if is == nil {
				return at + " is not there"
			}
			return ""
		}
		text, _ := is.(string)
		if strip := func(s string) string { return revisions.ReplaceAllString(s, "revision=N") }; strip(text) == strip(want) {
			return ""
		}
	case map[string]any:
		m, ok := is.(map[string]any)
		if !ok {
			break
		}
		for k, v := range want {
			if where := differs(m[k], v, at+"."+k); where != "" {
				return where
			}
		}
		for k := range m {
			if _, ok := want[k]; !ok {
				return fmt.Sprintf("%s.%s is too much", at, k)
			}
		}
		return ""
	case []any:
		s, ok := is.([]any)
		if !ok || len(s) != len(want) {
			break
		}
		for i := range want {
			if where := differs(s[i], want[i], fmt.Sprintf("%s[%d]", at, i)); where != "" {
				return where
			}
		}
		return ""
	default:
		if reflect.DeepEqual(is, want) {
			return ""
		}
	}
	text, _ := json.Marshal(is)
	wanted, _ := json.Marshal(want)
	return fmt.Sprintf("%s is %s, recorded %s", at, text, wanted)
}

// recordedMetric is a metric with its samples.
type recordedMetric struct {
	Name, Type string
	Samples    []string
}

func recordedMetrics(t *testing.T) (out []recordedMetric) {
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
