package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/request"
)

// oddString holds characters that JSON has to escape, and an invalid byte.
var oddString = "a<b>&\"\\\n\u2028é\xff"

// fullEvent returns an event with all fields set.
func fullEvent() *Event {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.FixedZone("x", 3600))
	return &Event{
		Level: RequestResponse,
		ID:    "id",
		Stage: ResponseComplete,
		URI:   "/x?a=1&b=2",
		Verb:  "get",
		User: &request.User{
			Name:   oddString,
			UID:    "u",
			Groups: []string{"g", oddString},
			Extra:  map[string][]string{"k": {"v", "w"}, "empty": nil},
		},
		Impersonated: &request.User{Name: "eve"},
		SourceIPs:    []string{"127.0.0.1"},
		UserAgent:    oddString,
		Object: &Reference{
			Resource:        "pods",
			Namespace:       "a",
			Name:            oddString,
			UID:             "1",
			APIGroup:        "g",
			APIVersion:      "v1",
			ResourceVersion: "7",
			Subresource:     "log",
		},
		Status: &metav1.Status{
			Status:  "Failure",
			Message: oddString,
			Reason:  "Forbidden",
			Code:    403,
			Details: &metav1.StatusDetails{Name: "n"},
		},
		RequestObject:  []byte(`{"a":1}`),
		ResponseObject: []byte(`[]`),
		Received:       at,
		Staged:         at.Add(time.Second),
		Annotations:    Annotations{{"b", oddString}, {"a", ""}},
	}
}

// TestEventMatchesEncodingJSON checks that the JSON of an event equals the output of encoding/json
// for the same fields.
func TestEventMatchesEncodingJSON(t *testing.T) {
	line := fullEvent().AppendLine(nil)
	quoted, _ := json.Marshal(oddString)
	odd := string(quoted)
	want := `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"id",` +
		`"stage":"ResponseComplete","requestURI":"/x?a=1\u0026b=2","verb":"get",` +
		`"user":{"username":` + odd + `,"uid":"u","groups":["g",` + odd + `],"extra":{"empty":[],"k":["v","w"]}},` +
		`"impersonatedUser":{"username":"eve"},"sourceIPs":["127.0.0.1"],"userAgent":` + odd + `,` +
		`"objectRef":{"resource":"pods","namespace":"a","name":` + odd + `,"uid":"1","apiGroup":"g","apiVersion":"v1",` +
		`"resourceVersion":"7","subresource":"log"},` +
		`"responseStatus":{"metadata":{},"status":"Failure","message":` + odd + `,"reason":"Forbidden",` +
		`"details":{"name":"n"},"code":403},"requestObject":{"a":1},"responseObject":[],` +
		`"requestReceivedTimestamp":"2026-01-02T02:04:05.000006Z","stageTimestamp":"2026-01-02T02:04:06.000006Z",` +
		`"annotations":{"a":"","b":` + odd + `}}`
	if string(line) != want {
		t.Errorf("AppendLine: got\n%s\nwant\n%s", line, want)
	}
	// An item of a list has neither kind nor apiVersion.
	wantItem := "{" + strings.TrimPrefix(want, eventPrefix)
	if item := AppendItem(nil, line); string(item) != wantItem {
		t.Errorf("AppendItem: got\n%s\nwant\n%s", item, wantItem)
	}
	empty := (&Event{Stage: ResponseStarted, Level: Metadata, Received: time.Unix(0, 0), Staged: time.Unix(0, 0)}).AppendLine(nil)
	if want := `"requestURI":"","verb":"","user":{},"requestReceivedTimestamp":"1970-01-01T00:00:00.000000Z"`; !bytes.Contains(empty, []byte(want)) {
		t.Errorf("empty event: got %s, want it to contain %s", empty, want)
	}
}

// TestTimestampMatchesPackageTime checks that timestamps equal those that package time formats.
func TestTimestampMatchesPackageTime(t *testing.T) {
	const layout = "2006-01-02T15:04:05.000000Z"
	at := time.Date(1999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)
	for range 2000 {
		event := &Event{Stage: ResponseComplete, Received: at, Staged: at.Add(time.Microsecond)}
		want := fmt.Sprintf(`"requestReceivedTimestamp":%q,"stageTimestamp":%q}`,
			event.Received.Format(layout), event.Staged.Format(layout))
		if line := event.AppendLine(nil); !bytes.HasSuffix(line, []byte(want)) {
			t.Fatalf("got line %s, want it to end with %s", line, want)
		}
		at = at.Add(9*time.Hour + 123456789)
	}
	event := &Event{Stage: RequestReceived, Received: at, Staged: at}
	if line, when := event.AppendLine(nil), at.Format(layout); bytes.Count(line, []byte(when)) != 2 {
		t.Errorf("equal times: got line %s, want it to contain %s twice", line, when)
	}
}

// TestMinimalEventIsSmall checks that a minimal event is small for any client input.
func TestMinimalEventIsSmall(t *testing.T) {
	event := fullEvent()
	long := strings.Repeat("x", 1<<20)
	event.URI = long
	event.UserAgent = long
	event.User.Name = long
	event.Impersonated.Name = long
	event.Object.Name = long
	event.Status.Message = long
	event.User.Extra["k"] = []string{long}
	event.Annotations = append(event.Annotations, Annotation{"long", long})
	for range 1000 {
		event.SourceIPs, event.User.Groups = append(event.SourceIPs, "10.0.0.1"), append(event.User.Groups, long)
	}
	event.SourceIPs = append(event.SourceIPs, "127.0.0.9")
	line := event.Minimal().AppendLine(nil)
	if len(line) > 20<<10 || !json.Valid(line) {
		t.Errorf("got %d bytes, want valid JSON of at most 20 KiB: %.300s", len(line), line)
	}
	for _, want := range []string{`"audit.k8s.io/truncated":"true"`, `"127.0.0.9"`, `"auditID":"id"`, `"code":403`} {
		if !bytes.Contains(line, []byte(want)) {
			t.Errorf("minimal event %.300s lacks %s", line, want)
		}
	}
	if event.Annotations.Get(Truncated) != "" || event.URI != long {
		t.Error("Minimal changed the original event, want a copy")
	}
}

// BenchmarkLine measures the encoding of the event of a GET.
func BenchmarkLine(b *testing.B) {
	at := time.Now()
	event := &Event{
		Level: Metadata,
		ID:    "12da0025-18f8-4cb4-b034-b4b56a9f9da1",
		Stage: ResponseComplete,
		URI:   "/api/v1/namespaces/some/pods/some-7d4b9c-x2x8v",
		Verb:  "get",
		User: &request.User{
			Name:   "system:node:some",
			Groups: []string{"system:nodes", "system:authenticated"},
			Extra:  map[string][]string{"authentication.kubernetes.io/credential-id": {"X509SHA256=" + strings.Repeat("6e2a343c", 8)}},
		},
		SourceIPs:   []string{"127.0.0.1"},
		UserAgent:   "kubelet/v1.33.0 (linux/amd64) kubernetes/0000000",
		Object:      &Reference{Resource: "pods", Namespace: "some", Name: "some-7d4b9c-x2x8v", APIVersion: "v1"},
		Status:      &metav1.Status{Code: 200},
		Received:    at,
		Staged:      at.Add(time.Millisecond),
		Annotations: Annotations{{"authorization.k8s.io/decision", "allow"}, {"authorization.k8s.io/reason", ""}},
	}
	var line []byte
	b.ReportAllocs()
	for b.Loop() {
		line = event.AppendLine(line[:0])
	}
}
