package review_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/authorizer"
	"binnacle/libs/rbac"
	"binnacle/services/authz-webhook/internal/review"
)

// byVerb is an authorizer that decides by the verb. Its reason shows the attributes.
type byVerb struct{}

func (byVerb) Authorize(_ context.Context, a *authorizer.Attributes) (authorizer.Decision, string, error) {
	reason := fmt.Sprintf("%s %v %s/%s/%s/%s/%s/%s %s %v %v", a.User.Name, a.User.Groups, a.Namespace, a.Group,
		a.Version, a.ResourceName, a.Subresource, a.Name, a.Path, a.FieldSelector, a.User.Extra)
	switch a.Verb {
	case "get":
		return authorizer.Allow, reason, nil
	case "delete":
		return authorizer.Deny, reason, nil
	case "fail":
		return authorizer.NoOpinion, "", errors.New("out of order")
	}
	return authorizer.NoOpinion, reason, nil
}

func handler(ready error) http.Handler {
	h := review.New(review.Config{
		Authorizer: byVerb{},
		Position:   func() rbac.Position { return rbac.Position{1, 2, 3, 4} },
		Nodes:      true,
		Ready:      func() error { return ready },
		Logger:     slog.New(slog.DiscardHandler), Metrics: review.NewMetrics(prometheus.NewRegistry()),
	})
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.POST("/", h.Serve)
	e.GET("/", review.NotAllowed)
	return e
}

func post(h http.Handler, body string, media string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/", bytes.NewBufferString(body))
	r.Header.Set("Content-Type", media)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const attrs = `"resourceAttributes":{"verb":"%s","namespace":"a","group":"apps","version":"v1","resource":"deployments","subresource":"scale","name":"d","fieldSelector":{"rawSelector":"x=y"}}`

// TestReviews checks decisions, reasons and errors for both versions.
func TestReviews(t *testing.T) {
	const asked = "alice [dev] a/apps/v1/deployments/scale/d  [{= x y}] map[s:[1 2]]"
	for version, groups := range map[string]string{"v1": "groups", "v1beta1": "group"} {
		for verb, want := range map[string]string{
			"get":    `{"allowed":true,"reason":"` + asked + `"}`,
			"delete": `{"allowed":false,"denied":true,"reason":"` + asked + `"}`,
			"list":   `{"allowed":false,"reason":"` + asked + `"}`, "fail": `{"allowed":false,"evaluationError":"out of order"}`,
		} {
			body := fmt.Sprintf(`{"apiVersion":"authorization.k8s.io/%s","kind":"SubjectAccessReview","spec":{"user":"alice",%q:["dev"],"extra":{"s":["1","2"]},`+attrs+`}}`, version, groups, verb)
			responseRecorder := post(handler(nil), body, "application/json; charset=utf-8")
			var got struct {
				APIVersion, Kind string
				Status           json.RawMessage
			}
			if err := json.Unmarshal(responseRecorder.Body.Bytes(), &got); err != nil || responseRecorder.Code != 200 ||
				got.APIVersion != "authorization.k8s.io/"+version || got.Kind != "SubjectAccessReview" ||
				string(got.Status) != want {
				t.Errorf("%s %s: got %d %s, %v\nwant %s", version, verb, responseRecorder.Code, responseRecorder.Body, err, want)
			}
			if h := responseRecorder.Header().Get(rbac.PositionHeader); h != "clusterrolebindings=1,clusterroles=2,rolebindings=3,roles=4" {
				t.Errorf("got position %q, want \"clusterrolebindings=1,clusterroles=2,rolebindings=3,roles=4\"", h)
			}
			if responseRecorder.Header().Get("Cache-Control") != "" {
				t.Errorf("%s %s: got Cache-Control %q, want none: decisions by roles alone can be cached",
					version, verb, responseRecorder.Header().Get("Cache-Control"))
			}
		}
	}
	responseRecorder := post(handler(nil), `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"system:node:n","groups":["system:nodes"],"nonResourceAttributes":{"path":"/x","verb":"get"}}}`, "application/json")
	if responseRecorder.Code != 200 || responseRecorder.Header().Get("Cache-Control") != "no-store" || !strings.Contains(responseRecorder.Body.String(),
		"system:node:n [system:nodes] ///// /x") {
		t.Errorf("node: got %d %v %s; want 200, \"no-store\", text with \"system:node:n [system:nodes] ///// /x\"",
			responseRecorder.Code, responseRecorder.Header(), responseRecorder.Body)
	}
}

// TestGroupsOnly covers users without a name, and nodes without the node authorizer.
func TestGroupsOnly(t *testing.T) {
	const asked = `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{%s,"nonResourceAttributes":{"path":"/x","verb":"get"}}}`
	if w := post(handler(nil), fmt.Sprintf(asked, `"groups":["dev"]`), "application/json"); w.Code != 200 ||
		!strings.Contains(w.Body.String(), `"allowed":true,"reason":" [dev] `) {
		t.Errorf("got status %d: %s, want 200, allowed for the group dev", w.Code, w.Body)
	}
	engine := gin.New()
	engine.POST("/", review.New(review.Config{
		Authorizer: byVerb{},
		Ready:      func() error { return nil },
		Logger:     slog.New(slog.DiscardHandler),
		Metrics:    review.NewMetrics(prometheus.NewRegistry()),
	}).Serve)
	if w := post(engine, fmt.Sprintf(asked, `"user":"system:node:n","groups":["system:nodes"]`),
		"application/json"); w.Code != 200 || w.Header().Get("Cache-Control") != "" {
		t.Errorf("got %d %v %s; want 200, \"\"", w.Code, w.Header(), w.Body)
	}
}

// TestInvalidReviews checks the responses to invalid bodies, and to other methods than POST.
func TestInvalidReviews(t *testing.T) {
	spec := func(s string) string {
		return `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{` + s + `}}`
	}
	both := fmt.Sprintf(attrs, "get") + `,"nonResourceAttributes":{"path":"/","verb":"get"}`
	for _, test := range []struct {
		body, media string
		code        int
		want        string
	}{
		{body: "{}", media: "text/plain", code: 415, want: "must be of type application/json"},
		{body: "", media: "", code: 415, want: "must be of type"},
		{body: "{}", media: "application/json; charset", code: 415, want: "must be of type"},
		{body: "x", media: "application/json", code: 400, want: "not a JSON object"},
		{body: "{}", media: "application/json", code: 400, want: "not of kind SubjectAccessReview"},
		{
			body:  `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v2"}`,
			media: "application/json",
			code:  400,
			want:  "apiVersion must be",
		},
		{
			body:  `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1beta1","spec":{"group":"x"}}`,
			media: "application/json",
			code:  400,
			want:  "not a JSON object",
		},
		{body: spec(`"user":"a"`), media: "application/json", code: 400, want: "exactly one of"},
		{body: spec(`"user":"a",` + both), media: "application/json", code: 400, want: "exactly one of"},
		{
			body:  spec(fmt.Sprintf(attrs, "get")),
			media: "application/json",
			code:  400,
			want:  "at least one of spec.user and spec.groups",
		},
		{body: spec(`"user":"` + strings.Repeat("x", 1<<20) + `"`), media: "application/json", code: 413, want: "larger than"},
	} {
		w := post(handler(nil), test.body, test.media)
		if w.Code != test.code || !strings.Contains(w.Body.String(), test.want) || !strings.Contains(w.Body.String(),
			`"kind":"Status"`) {
			t.Errorf("%.80s: got %d %s, want %d %s", test.body, w.Code, w.Body, test.code, test.want)
		}
	}
	w := post(handler(errors.New("roles are not listed yet")), spec(`"user":"a",`+fmt.Sprintf(attrs, "get")), "application/json")
	if w.Code != 503 || w.Header().Get("Retry-After") == "" || w.Header().Get("Cache-Control") != "no-store" ||
		!strings.Contains(w.Body.String(), "roles are not listed yet") {
		t.Errorf("not ready: got %d %v %s; want 503, other than \"\", \"no-store\", text with \"roles are not listed yet\"", w.Code, w.Header(), w.Body)
	}
	r := httptest.NewRecorder()
	handler(nil).ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/", nil))
	if r.Code != 405 || r.Header().Get("Allow") != "POST" {
		t.Errorf("GET: got %d; want 405, \"POST\"", r.Code)
	}
}

// FuzzDecode checks that the attributes of each accepted review can be converted back to a review.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"authorization.k8s.io/v1beta1","kind":"SubjectAccessReview","spec":{"user":"a","group":["b"],` + fmt.Sprintf(attrs, "get") + `}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := review.Decode(body)
		if err != nil {
			return
		}
		attributes, problems := authorizer.AttributesOf(authorizer.UserOf(&r.Spec), r.Spec.ResourceAttributes,
			r.Spec.NonResourceAttributes)
		for _, p := range problems {
			_ = p.Error()
		}
		again := attributes.Spec()
		if b, _ := authorizer.AttributesOf(attributes.User, again.ResourceAttributes,
			again.NonResourceAttributes); b.Resource != attributes.Resource || b.Name != attributes.Name ||
			len(b.FieldSelector) > len(attributes.FieldSelector) {
			t.Errorf("%s: got %+v, then %+v; want %v, %v, at most %v", body, attributes, b, attributes.Resource, attributes.Name, len(attributes.FieldSelector))
		}
	})
}

// BenchmarkReview measures a review without the connection, with different numbers of role
// bindings.
func BenchmarkReview(b *testing.B) {
	gin.SetMode(gin.ReleaseMode)
	for _, rules := range []int{10, 1000, 10000} {
		e := rbac.New()
		e.Update(func(transaction *rbac.Tx) {
			for i := range rules {
				meta := metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprint("r", i)}
				transaction.Set(&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
					{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}},
					{APIGroups: []string{"apps"}, Resources: []string{"deployments/scale"}, Verbs: []string{"get"}},
				}})
				transaction.Set(&rbacv1.RoleBinding{
					ObjectMeta: meta,
					RoleRef:    rbacv1.RoleRef{Kind: rbac.KindRole, Name: meta.Name},
					Subjects:   []rbacv1.Subject{{Kind: "User", Name: fmt.Sprint("u", i)}},
				})
			}
		})
		h := review.New(review.Config{
			Authorizer: e, Position: func() rbac.Position { return e.Snapshot().Position() }, Ready: func() error { return nil },
			Logger: slog.New(slog.DiscardHandler), Metrics: review.NewMetrics(prometheus.NewRegistry()),
		})
		engine := gin.New()
		engine.POST("/", h.Serve)
		for _, verb := range []string{"get", "delete"} {
			body := fmt.Sprintf(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"u%d","groups":["dev","system:authenticated"],`+attrs+`}}`, rules/2, verb)
			b.Run(fmt.Sprintf("%s/%d", verb, rules), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if w := post(engine, body, "application/json"); w.Code != 200 {
						b.Fatal(w.Code)
					}
				}
			})
		}
	}
}
