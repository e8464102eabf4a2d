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
)

// TestAnswersOfManyValues are not decoded: the webhook has failed, and its failurePolicy says what that means.
func TestAnswersOfManyValues(t *testing.T) {
	many := strings.Repeat(",{}", 300_000)
	for name, response := range map[string]string{
		"causes":   `"allowed":true,"status":{"details":{"causes":[{}` + many + `]}}`,
		"warnings": `"allowed":true,"warnings":[""` + strings.ReplaceAll(many, "{}", `""`) + `]`,
		"unknown":  `"allowed":true,"x":[{}` + many + `]`,
	} {
		h := serve(t, func(http.ResponseWriter, question) string { return response })
		for _, policy := range []admissionv1.FailurePolicyType{admissionv1.Fail, admissionv1.Ignore} {
			b := start(t, validating("a", h.at("/"), func(w *admissionv1.ValidatingWebhook) { w.FailurePolicy = &policy }))
			err := b.chain.Validate(t.Context(), b.request())
			if policy == admissionv1.Ignore && err != nil || policy == admissionv1.Fail && (!apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "too many values")) {
				t.Errorf("%s, %s: %v", name, policy, err)
			}
		}
	}
}

// TestWhatIsToldIsBounded: of causes, warnings and audit annotations.
func TestWhatIsToldIsBounded(t *testing.T) {
	var annotations strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&annotations, `,"k%d":"v"`, i)
	}
	long := strings.Repeat("w", 1<<20)
	h := serve(t, func(http.ResponseWriter, question) string {
		return `"allowed":false,"status":{"message":"no","reason":"` + long + `","details":{"uid":"` + long + `","causes":[{}` + strings.Repeat(`,{"message":"m"}`, 5000) + `]}},` +
			`"warnings":["` + long + `"` + strings.Repeat(`,"w"`, 5000) + `],"auditAnnotations":{"a":"b"` + annotations.String() + `}`
	})
	b := start(t, validating("a", h.at("/")))
	ctx, warnings := request.WithWarnings(t.Context())
	r := b.request()
	err := b.chain.Validate(ctx, r)
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		t.Fatalf("%v", err)
	}
	st := status.Status()
	if n := len(st.Details.Causes); n != 1001 || !strings.Contains(st.Details.Causes[n-1].Message, "4000 more") && !strings.Contains(st.Details.Causes[n-1].Message, "4001 more") {
		t.Errorf("%d causes are told", n)
	}
	if len(st.Reason) > 10<<10 || len(st.Details.UID) > 10<<10 || !strings.Contains(st.Message, "no") {
		t.Errorf("a reason of %d bytes, a UID of %d", len(st.Reason), len(st.Details.UID))
	}
	told := r.Annotations()
	if n := len(told); n > 1001 || told["a.ex.test/annotations-left-out"] != "4001" || told["a.ex.test/a"] != "b" {
		t.Errorf("%d annotations, of which are left out %s", n, told["a.ex.test/annotations-left-out"])
	}
	size := 0
	for _, w := range warnings.Headers() {
		size += len(w)
	}
	if size > 8<<10 || size == 0 {
		t.Errorf("%d bytes of warnings", size)
	}
}

// TestPatchesHaveTheTurn of their request, which others have while the webhook is asked.
func TestPatchesHaveTheTurn(t *testing.T) {
	patch := `[{"op":"add","path":"/data/n","value":"` + strings.Repeat("x", 100<<10) + `"}]`
	h := serve(t, func(http.ResponseWriter, question) string {
		return `"allowed":true,"patchType":"JSONPatch","patch":"` + base64.StdEncoding.EncodeToString([]byte(patch)) + `"`
	})
	b := start(t, mutating("a", h.at("/")))
	ctx := requestinfo.Carry(t.Context(), &requestinfo.Info{})
	var told []string
	request.SetAside(ctx, func() func() {
		told = append(told, "aside")
		return func() { told = append(told, "back") }
	})
	request.SetWeigh(ctx, func(size int) bool {
		if size >= len(patch) {
			told = append(told, "weighed")
		}
		return true
	})
	if err := b.chain.Mutate(ctx, b.request()); err != nil || strings.Join(told, " ") != "aside back weighed" {
		t.Errorf("%v, %v", told, err)
	}
}

// TestQuestionsShareObjects: who asks many webhooks about a large object has it once.
func TestQuestionsShareObjects(t *testing.T) {
	const many, size = 60, 1 << 20
	came, answer := make(chan struct{}, many), make(chan struct{})
	// It reads nothing before it has to answer.
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came <- struct{}{}
		<-answer
		_, _ = io.Copy(io.Discard, r.Body)
		http.Error(w, "no", http.StatusInternalServerError)
	}))
	defer s.Close()
	h := &hooks{Server: s}
	var configurations []*admissionv1.ValidatingWebhookConfiguration
	ignore, seconds := admissionv1.Ignore, int32(30)
	for i := range many {
		configurations = append(configurations, validating(fmt.Sprint("a", i), h.at(fmt.Sprint("/", i)), func(w *admissionv1.ValidatingWebhook) {
			w.FailurePolicy, w.TimeoutSeconds = &ignore, &seconds
		}))
	}
	b := start(t, configurations...)
	r := b.request()
	setData(r, strings.Repeat("x", size))
	before := heap()
	done := make(chan error, 1)
	go func() { done <- b.chain.Validate(t.Context(), r) }()
	for range many {
		<-came
	}
	more := heap() - before
	close(answer)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if more > many*size/3 {
		t.Errorf("%d questions about %d bytes hold %d", many, size, more)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestLongAnnotationsAreLeftOut, however few they are.
func TestLongAnnotationsAreLeftOut(t *testing.T) {
	long := strings.Repeat("v", 100<<10)
	h := serve(t, func(http.ResponseWriter, question) string {
		return `"allowed":true,"auditAnnotations":{"a":"` + long + `","b":"` + long + `","c":"` + long + `","d":"v"}`
	})
	b := start(t, validating("a", h.at("/")))
	r := b.request()
	if err := b.chain.Validate(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if told := r.Annotations(); len(told) != 3 || told["a.ex.test/annotations-left-out"] != "2" || told["a.ex.test/b"] != long {
		t.Errorf("%d annotations, of which are left out %s", len(told), told["a.ex.test/annotations-left-out"])
	}
}
