package webhooks_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// TestResponseWithTooManyValuesFails checks that such a response is a failure, to which the
// failurePolicy applies.
func TestResponseWithTooManyValuesFails(t *testing.T) {
	many := strings.Repeat(",{}", 300_000)
	for name, response := range map[string]string{
		"causes":                     `"allowed":true,"status":{"details":{"causes":[{}` + many + `]}}`,
		"warnings":                   `"allowed":true,"warnings":[""` + strings.ReplaceAll(many, "{}", `""`) + `]`,
		"values of an unknown field": `"allowed":true,"x":[{}` + many + `]`,
	} {
		server := serve(t, func(http.ResponseWriter, receivedReview) string { return response })
		for _, policy := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore} {
			fixture := start(
				t,
				validatingConfiguration(
					"a",
					server.clientConfig("/"),
					func(w *admissionregistrationv1.ValidatingWebhook) { w.FailurePolicy = &policy },
				),
			)
			err := fixture.chain.Validate(t.Context(), fixture.request())
			if policy == admissionregistrationv1.Ignore {
				if err != nil {
					t.Errorf("many %s, failurePolicy Ignore: got error %v, want none", name, err)
				}
			} else if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "too many values") {
				t.Errorf("many %s, failurePolicy Fail: got error %v, want an internal error that contains \"too many values\"", name, err)
			}
		}
	}
}

// TestResponseExtrasAreBounded checks that the client and the audit log receive a bounded part of the
// causes, warnings and audit annotations that a webhook sends, with the number of omitted ones.
func TestResponseExtrasAreBounded(t *testing.T) {
	// 1. Send a rejection with too much of everything.
	var annotations strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&annotations, `,"k%d":"v"`, i)
	}
	long := strings.Repeat("w", 1<<20)
	server := serve(t, func(http.ResponseWriter, receivedReview) string {
		causes := `[{}` + strings.Repeat(`,{"message":"m"}`, 5000) + `]`
		return `"allowed":false,` +
			`"status":{"message":"no","reason":"` + long + `","details":{"uid":"` + long + `","causes":` + causes + `}},` +
			`"warnings":["` + long + `"` + strings.Repeat(`,"w"`, 5000) + `],` +
			`"auditAnnotations":{"a":"b"` + annotations.String() + `}`
	})
	f := start(t, validatingConfiguration("a", server.clientConfig("/")))
	ctx, warnings := requesttest.WithWarnings(t.Context())
	req := f.request()
	err := f.chain.Validate(ctx, req)
	apiStatus, ok := err.(apierrors.APIStatus)
	if !ok {
		t.Fatalf("got %v, want a status error", err)
	}

	// 2. Check the status: 1000 causes of the webhook and one with the number of the others.
	status := apiStatus.Status()
	if n := len(status.Details.Causes); n != 1001 || !strings.Contains(status.Details.Causes[n-1].Message, "4001 more") {
		t.Errorf("got %d causes, the last one %q; want 1001, the last one with \"4001 more\"", n, status.Details.Causes[n-1].Message)
	}
	if len(status.Reason) > 10<<10 || len(status.Details.UID) > 10<<10 {
		t.Errorf("got a reason of %d bytes, a UID of %d, want at most 10 KiB each", len(status.Reason), len(status.Details.UID))
	}
	if !strings.Contains(status.Message, "no") {
		t.Errorf("got message %.100q, want that of the webhook, no", status.Message)
	}

	// 3. Check the audit annotations and the warnings.
	annotated := req.Annotations()
	omitted, first := annotated["a.ex.test/annotations-left-out"], annotated["a.ex.test/a"]
	if n := len(annotated); n > 1001 || omitted != "4001" || first != "b" {
		t.Errorf("got %d annotations, %q omitted, a=%q; want at most 1001, \"4001\" omitted, a=\"b\"", n, omitted, first)
	}
	size := 0
	for _, w := range warnings.Headers() {
		size += len(w)
	}
	if size > 8<<10 || size == 0 {
		t.Errorf("got %d bytes of warnings, want at most 8 KiB", size)
	}
}

// TestPatchIsAppliedWithinLimiter checks that a request releases the limiter for large requests
// during a call and acquires it again for the patch.
func TestPatchIsAppliedWithinLimiter(t *testing.T) {
	patch := `[{"op":"add","path":"/data/n","value":"` + strings.Repeat("x", 100<<10) + `"}]`
	server := serve(t, func(http.ResponseWriter, receivedReview) string {
		return `"allowed":true,"patchType":"JSONPatch","patch":"` + base64.StdEncoding.EncodeToString([]byte(patch)) + `"`
	})
	fixture := start(t, mutatingConfiguration("a", server.clientConfig("/")))
	ctx := requesttest.WithInfo(t.Context(), &requestinfo.Info{})
	var events []string
	request.FromContext(ctx).Work = &requesttest.Work{
		OnSuspend: func() func() {
			events = append(events, "suspend")
			return func() { events = append(events, "resume") }
		},
		OnEstimate: func(size int) bool {
			if size >= len(patch) {
				events = append(events, "estimate")
			}
			return true
		},
	}
	if err := fixture.chain.Mutate(ctx, fixture.request()); err != nil || strings.Join(events, " ") != "suspend resume estimate" {
		t.Errorf("got events %q and error %v; want \"suspend resume estimate\" and no error", events, err)
	}
}

// TestReviewRequestsShareObjects checks that concurrent calls do not copy a large object.
func TestReviewRequestsShareObjects(t *testing.T) {
	const webhookCount, size = 60, 1 << 20
	received, mayRespond := make(chan struct{}, webhookCount), make(chan struct{})
	// The webhook reads the request only when it may respond.
	httpServer := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		received <- struct{}{}
		<-mayRespond
		_, _ = io.Copy(io.Discard, req.Body)
		http.Error(w, "no", http.StatusInternalServerError)
	}))
	defer httpServer.Close()
	server := &webhookServer{Server: httpServer}
	var configurations []*admissionregistrationv1.ValidatingWebhookConfiguration
	ignorePolicy, seconds := admissionregistrationv1.Ignore, int32(30)
	for i := range webhookCount {
		configurations = append(
			configurations,
			validatingConfiguration(
				fmt.Sprint("a", i),
				server.clientConfig(fmt.Sprint("/", i)),
				func(w *admissionregistrationv1.ValidatingWebhook) {
					w.FailurePolicy, w.TimeoutSeconds = &ignorePolicy, &seconds
				},
			),
		)
	}
	fixture := start(t, configurations...)
	req := fixture.request()
	setData(req, strings.Repeat("x", size))
	before := liveHeapBytes()
	done := make(chan error, 1)
	go func() { done <- fixture.chain.Validate(t.Context(), req) }()
	for range webhookCount {
		<-received
	}
	used := liveHeapBytes() - before
	close(mayRespond)
	if err := <-done; err != nil {
		t.Errorf("Validate with failurePolicy Ignore: got error %v, want none", err)
	}
	if used > webhookCount*size/3 {
		t.Errorf("%d requests with an object of %d bytes: got %d bytes used, want at most a third of a copy for each",
			webhookCount, size, used)
	}
}

// liveHeapBytes returns the bytes of live heap objects.
func liveHeapBytes() int64 {
	runtime.GC()
	runtime.GC() // the second collection frees objects that had finalizers
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestLongAnnotationsAreOmitted checks that of four audit annotations with 300 KiB in total, two are
// omitted and counted.
func TestLongAnnotationsAreOmitted(t *testing.T) {
	long := strings.Repeat("v", 100<<10)
	server := serve(t, func(http.ResponseWriter, receivedReview) string {
		return `"allowed":true,"auditAnnotations":{"a":"` + long + `","b":"` + long + `","c":"` + long + `","d":"v"}`
	})
	f := start(t, validatingConfiguration("a", server.clientConfig("/")))
	req := f.request()
	if err := f.chain.Validate(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if got := req.Annotations(); len(got) != 3 || got["a.ex.test/annotations-left-out"] != "2" || got["a.ex.test/b"] != long {
		t.Errorf("got %d annotations, %q omitted, b of %d bytes; want 3, \"2\" omitted, b of %d bytes",
			len(got), got["a.ex.test/annotations-left-out"], len(got["a.ex.test/b"]), len(long))
	}
}
