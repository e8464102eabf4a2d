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

	admissionv1 "k8s.io/api/admissionregistration/v1"
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
		"causes":   `"allowed":true,"status":{"details":{"causes":[{}` + many + `]}}`,
		"warnings": `"allowed":true,"warnings":[""` + strings.ReplaceAll(many, "{}", `""`) + `]`,
		"unknown":  `"allowed":true,"x":[{}` + many + `]`,
	} {
		server := serve(t, func(http.ResponseWriter, receivedReview) string { return response })
		for _, policy := range []admissionv1.FailurePolicyType{admissionv1.Fail, admissionv1.Ignore} {
			f := start(
				t,
				validatingConfiguration(
					"a",
					server.clientConfig("/"),
					func(w *admissionv1.ValidatingWebhook) { w.FailurePolicy = &policy },
				),
			)
			err := f.chain.Validate(t.Context(), f.request())
			if policy == admissionv1.Ignore && err != nil ||
				policy == admissionv1.Fail && (!apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "too many values")) {
				t.Errorf("%s, %s: got error %v, want an internal error about too many values, or none if ignored", name, policy, err)
			}
		}
	}
}

// TestResponseExtrasAreBounded covers causes, warnings and audit annotations.
func TestResponseExtrasAreBounded(t *testing.T) {
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
	r := f.request()
	err := f.chain.Validate(ctx, r)
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		t.Fatalf("got %v, want a status error", err)
	}
	st := status.Status()
	if n := len(st.Details.Causes); n != 1001 ||
		!strings.Contains(st.Details.Causes[n-1].Message, "4000 more") &&
			!strings.Contains(st.Details.Causes[n-1].Message, "4001 more") {
		t.Errorf("got %d causes, want 1001", n)
	}
	if len(st.Reason) > 10<<10 || len(st.Details.UID) > 10<<10 {
		t.Errorf("got a reason of %d bytes, a UID of %d, want at most 10 KiB each", len(st.Reason), len(st.Details.UID))
	}
	if !strings.Contains(st.Message, "no") {
		t.Errorf("got message %.100q, want that of the webhook, no", st.Message)
	}
	annotated := r.Annotations()
	if n := len(annotated); n > 1001 || annotated["a.ex.test/annotations-left-out"] != "4001" || annotated["a.ex.test/a"] != "b" {
		t.Errorf("got %d annotations, %s omitted; want at most 1001, \"4001\", \"b\"", n, annotated["a.ex.test/annotations-left-out"])
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
	f := start(t, mutatingConfiguration("a", server.clientConfig("/")))
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
	if err := f.chain.Mutate(ctx, f.request()); err != nil || strings.Join(events, " ") != "suspend resume estimate" {
		t.Errorf("got %v, %v; want no error, \"suspend resume estimate\"", events, err)
	}
}

// TestReviewRequestsShareObjects checks that concurrent calls do not copy a large object.
func TestReviewRequestsShareObjects(t *testing.T) {
	const many, size = 60, 1 << 20
	came, response := make(chan struct{}, many), make(chan struct{})
	// The webhook reads the request only when it may respond.
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came <- struct{}{}
		<-response
		_, _ = io.Copy(io.Discard, r.Body)
		http.Error(w, "no", http.StatusInternalServerError)
	}))
	defer s.Close()
	server := &webhookServer{Server: s}
	var configurations []*admissionv1.ValidatingWebhookConfiguration
	ignorePolicy, seconds := admissionv1.Ignore, int32(30)
	for i := range many {
		configurations = append(
			configurations,
			validatingConfiguration(
				fmt.Sprint("a", i),
				server.clientConfig(fmt.Sprint("/", i)),
				func(w *admissionv1.ValidatingWebhook) {
					w.FailurePolicy, w.TimeoutSeconds = &ignorePolicy, &seconds
				},
			),
		)
	}
	f := start(t, configurations...)
	r := f.request()
	setData(r, strings.Repeat("x", size))
	before := heap()
	done := make(chan error, 1)
	go func() { done <- f.chain.Validate(t.Context(), r) }()
	for range many {
		<-came
	}
	more := heap() - before
	close(response)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if more > many*size/3 {
		t.Errorf("%d requests with an object of %d bytes: got %d bytes used, want at most a third of a copy for each",
			many, size, more)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestLongAnnotationsAreOmitted(t *testing.T) {
	long := strings.Repeat("v", 100<<10)
	server := serve(t, func(http.ResponseWriter, receivedReview) string {
		return `"allowed":true,"auditAnnotations":{"a":"` + long + `","b":"` + long + `","c":"` + long + `","d":"v"}`
	})
	f := start(t, validatingConfiguration("a", server.clientConfig("/")))
	r := f.request()
	if err := f.chain.Validate(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if got := r.Annotations(); len(got) != 3 || got["a.ex.test/annotations-left-out"] != "2" || got["a.ex.test/b"] != long {
		t.Errorf("got %d annotations, %s omitted; want length 3, \"2\", %v", len(got), got["a.ex.test/annotations-left-out"], long)
	}
}
