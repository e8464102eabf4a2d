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

func (byVerb) Authorize(_ context.Context, attributes *authorizer.Attributes) (authorizer.Decision, string, error) {
	reason := fmt.Sprintf("%s %v %s/%s/%s/%s/%s/%s %s %v %v", attributes.User.Name, attributes.User.Groups, attributes.Namespace, attributes.Group,
		attributes.Version, attributes.ResourceName, attributes.Subresource, attributes.Name, attributes.Path, attributes.FieldSelector, attributes.User.Extra)
	switch attributes.Verb {
	case "get":
		return authorizer.Allow, reason, nil
	case "delete":
		return authorizer.Deny, reason, nil
	case "fail":
		return authorizer.NoOpinion, "", errors.New("out of order")
	}
	return authorizer.NoOpinion, reason, nil
}

// handler returns the handler of reviews. ready is the result of its readiness check.
func handler(ready error) http.Handler {
	reviews := review.New(review.Config{
		Authorizer: byVerb{},
		Position:   func() rbac.Position { return rbac.Position{1, 2, 3, 4} },
		Nodes:      true,
		Ready:      func() error { return ready },
		Logger:     slog.New(slog.DiscardHandler), Metrics: review.NewMetrics(prometheus.NewRegistry()),
	})
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.POST("/", reviews.Serve)
	engine.GET("/", review.NotAllowed)
	return engine
}

// post sends a review and returns the response.
func post(server http.Handler, body string, media string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPost, "/", bytes.NewBufferString(body))
	req.Header.Set("Content-Type", media)
	response := httptest.NewRecorder()
	server.ServeHTTP(response, req)
	return response
}

// resourceAttributes are the attributes of a request for a resource. The argument is the verb.
const resourceAttributes = `"resourceAttributes":{"verb":"%s","namespace":"a","group":"apps","version":"v1","resource":"deployments","subresource":"scale","name":"d","fieldSelector":{"rawSelector":"x=y"}}`

// TestReviewReportsDecision checks decisions, reasons and errors for both versions.
func TestReviewReportsDecision(t *testing.T) {
	const attributes = "alice [dev] a/apps/v1/deployments/scale/d  [{= x y}] map[s:[1 2]]"
	for version, groups := range map[string]string{"v1": "groups", "v1beta1": "group"} {
		for verb, want := range map[string]string{
			"get":    `{"allowed":true,"reason":"` + attributes + `"}`,
			"delete": `{"allowed":false,"denied":true,"reason":"` + attributes + `"}`,
			"list":   `{"allowed":false,"reason":"` + attributes + `"}`, "fail": `{"allowed":false,"evaluationError":"out of order"}`,
		} {
			body := fmt.Sprintf(`{"apiVersion":"authorization.k8s.io/%s","kind":"SubjectAccessReview","spec":{"user":"alice",%q:["dev"],"extra":{"s":["1","2"]},`+resourceAttributes+`}}`, version, groups, verb)
			response := post(handler(nil), body, "application/json; charset=utf-8")
			var got struct {
				APIVersion, Kind string
				Status           json.RawMessage
			}
			if err := json.Unmarshal(response.Body.Bytes(), &got); err != nil || response.Code != 200 ||
				got.APIVersion != "authorization.k8s.io/"+version || got.Kind != "SubjectAccessReview" ||
				string(got.Status) != want {
				t.Errorf("%s %s: got %d %s, %v\nwant %s", version, verb, response.Code, response.Body, err, want)
			}
			if position := response.Header().Get(rbac.PositionHeader); position != "clusterrolebindings=1,clusterroles=2,rolebindings=3,roles=4" {
				t.Errorf("got position %q, want \"clusterrolebindings=1,clusterroles=2,rolebindings=3,roles=4\"", position)
			}
			if response.Header().Get("Cache-Control") != "" {
				t.Errorf("%s %s: got Cache-Control %q, want none: decisions by roles alone can be cached",
					version, verb, response.Header().Get("Cache-Control"))
			}
		}
	}
}

// TestDecisionForNodeIsNotCached checks that a decision for a node forbids caching, because it depends on
// objects.
func TestDecisionForNodeIsNotCached(t *testing.T) {
	response := post(handler(nil), `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"system:node:n","groups":["system:nodes"],"nonResourceAttributes":{"path":"/x","verb":"get"}}}`, "application/json")
	if response.Code != 200 || response.Header().Get("Cache-Control") != "no-store" || !strings.Contains(response.Body.String(),
		"system:node:n [system:nodes] ///// /x") {
		t.Errorf("node: got %d %v %s; want 200, \"no-store\", text with \"system:node:n [system:nodes] ///// /x\"",
			response.Code, response.Header(), response.Body)
	}
}

// reviewFormat is a review of a non-resource path. Its argument is the user.
const reviewFormat = `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{%s,"nonResourceAttributes":{"path":"/x","verb":"get"}}}`

// TestGroupsWithoutUserAreDecided checks that a review may have groups without a user.
func TestGroupsWithoutUserAreDecided(t *testing.T) {
	if response := post(handler(nil), fmt.Sprintf(reviewFormat, `"groups":["dev"]`), "application/json"); response.Code != 200 ||
		!strings.Contains(response.Body.String(), `"allowed":true,"reason":" [dev] `) {
		t.Errorf("got status %d: %s, want 200, allowed for the group dev", response.Code, response.Body)
	}
}

// TestDecisionForNodeIsCachedWithoutNodeAuthorizer checks that a decision for a node may be cached if it
// depends on roles alone.
func TestDecisionForNodeIsCachedWithoutNodeAuthorizer(t *testing.T) {
	engine := gin.New()
	engine.POST("/", review.New(review.Config{
		Authorizer: byVerb{},
		Ready:      func() error { return nil },
		Logger:     slog.New(slog.DiscardHandler),
		Metrics:    review.NewMetrics(prometheus.NewRegistry()),
	}).Serve)
	if response := post(engine, fmt.Sprintf(reviewFormat, `"user":"system:node:n","groups":["system:nodes"]`),
		"application/json"); response.Code != 200 || response.Header().Get("Cache-Control") != "" {
		t.Errorf("got status %d, headers %v: %s; want 200 without Cache-Control", response.Code, response.Header(), response.Body)
	}
}

// TestInvalidReviews checks the responses to invalid bodies.
func TestInvalidReviews(t *testing.T) {
	spec := func(fields string) string {
		return `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{` + fields + `}}`
	}
	both := fmt.Sprintf(resourceAttributes, "get") + `,"nonResourceAttributes":{"path":"/","verb":"get"}`
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
			body:  spec(fmt.Sprintf(resourceAttributes, "get")),
			media: "application/json",
			code:  400,
			want:  "at least one of spec.user and spec.groups",
		},
		{body: spec(`"user":"` + strings.Repeat("x", 1<<20) + `"`), media: "application/json", code: 413, want: "larger than"},
	} {
		response := post(handler(nil), test.body, test.media)
		if response.Code != test.code || !strings.Contains(response.Body.String(), test.want) || !strings.Contains(response.Body.String(),
			`"kind":"Status"`) {
			t.Errorf("%.80s: got %d %s, want %d %s", test.body, response.Code, response.Body, test.code, test.want)
		}
	}
}

// TestReviewGets503UntilReady checks that reviews get 503 with Retry-After until the policy is listed.
func TestReviewGets503UntilReady(t *testing.T) {
	review := fmt.Sprintf(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"a",`+resourceAttributes+`}}`, "get")
	response := post(handler(errors.New("roles are not listed yet")), review, "application/json")
	if response.Code != 503 || response.Header().Get("Retry-After") == "" || response.Header().Get("Cache-Control") != "no-store" ||
		!strings.Contains(response.Body.String(), "roles are not listed yet") {
		t.Errorf("not ready: got %d %v %s; want 503 with Retry-After, no-store and the reason", response.Code, response.Header(), response.Body)
	}
}

// TestGetIsNotAllowed checks that GET gets 405 with the allowed method.
func TestGetIsNotAllowed(t *testing.T) {
	getResponse := httptest.NewRecorder()
	handler(nil).ServeHTTP(getResponse, httptest.NewRequest(http.MethodGet, "/", nil))
	if getResponse.Code != 405 || getResponse.Header().Get("Allow") != "POST" {
		t.Errorf("GET: got %d; want 405, \"POST\"", getResponse.Code)
	}
}

// FuzzDecode checks that the attributes of each accepted review can be converted back to a review.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"authorization.k8s.io/v1beta1","kind":"SubjectAccessReview","spec":{"user":"a","group":["b"],` + fmt.Sprintf(resourceAttributes, "get") + `}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		decoded, err := review.Decode(body)
		if err != nil {
			return
		}
		attributes, problems := authorizer.AttributesOf(authorizer.UserOf(&decoded.Spec), decoded.Spec.ResourceAttributes,
			decoded.Spec.NonResourceAttributes)
		for _, problem := range problems {
			_ = problem.Error()
		}
		again := attributes.Spec()
		if converted, _ := authorizer.AttributesOf(attributes.User, again.ResourceAttributes,
			again.NonResourceAttributes); converted.Resource != attributes.Resource || converted.Name != attributes.Name ||
			len(converted.FieldSelector) > len(attributes.FieldSelector) {
			t.Errorf("%s: got %+v, then %+v; want %v, %v, at most %v", body, attributes, converted, attributes.Resource, attributes.Name, len(attributes.FieldSelector))
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
		handler := review.New(review.Config{
			Authorizer: e, Position: func() rbac.Position { return e.Snapshot().Position() }, Ready: func() error { return nil },
			Logger: slog.New(slog.DiscardHandler), Metrics: review.NewMetrics(prometheus.NewRegistry()),
		})
		engine := gin.New()
		engine.POST("/", handler.Serve)
		for _, verb := range []string{"get", "delete"} {
			body := fmt.Sprintf(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"u%d","groups":["dev","system:authenticated"],`+resourceAttributes+`}}`, rules/2, verb)
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
