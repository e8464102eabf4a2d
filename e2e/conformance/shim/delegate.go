package shim

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// none stands for the authenticator and the authorizer of the server in the configuration that a
// test changes. It has no opinion, and notes in the context that it was asked.
type none struct{}

type askedKey struct{}

func (none) AuthenticateRequest(*http.Request) (*authenticator.Response, bool, error) {
	return nil, false, nil
}

func (none) Authorize(ctx context.Context, _ authorizer.Attributes) (authorizer.Decision, string, error) {
	if asked, ok := ctx.Value(askedKey{}).(*bool); ok {
		*asked = true
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (none) RulesFor(context.Context, user.Info,
	string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	return nil, nil, true, nil
}

// delegate serves the authenticator and the authorizer of a test as webhooks of the API server.
type delegate struct {
	authenticator authenticator.Request
	authorizer    authorizer.Authorizer
}

// serve starts the webhooks that the configuration g of a test needs. It returns their flags and a
// function that ends them. modes are the authorization modes of the server.
func serve(g *genericapiserver.Config, modes []string, dir string) (flags []string, stop func(), err error) {
	d := &delegate{authenticator: g.Authentication.Authenticator, authorizer: g.Authorization.Authorizer}
	mux := http.NewServeMux()
	mux.HandleFunc("/authenticate", d.authenticate)
	mux.HandleFunc("/authorize", d.authorize)
	s := httptest.NewTLSServer(mux)
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if d.authenticator != (authenticator.Request)(none{}) {
		file, err := kubeconfig(s, dir, "authenticate")
		if err != nil {
			return nil, nil, err
		}
		flags = append(flags, "--authentication-token-webhook-config-file="+file,
			"--authentication-token-webhook-version=v1", "--authentication-token-webhook-cache-ttl=0s")
	}
	if d.authorizer != (authorizer.Authorizer)(none{}) {
		file, err := kubeconfig(s, dir, "authorize")
		if err != nil {
			return nil, nil, err
		}
		modes := append([]string{"Webhook"},
			slices.DeleteFunc(slices.Clone(modes), func(m string) bool { return m == "Webhook" })...)
		flags = append(flags, "--authorization-mode="+strings.Join(modes, ","),
			"--authorization-webhook-config-file="+file, "--authorization-webhook-version=v1",
			"--authorization-webhook-cache-authorized-ttl=0s", "--authorization-webhook-cache-unauthorized-ttl=0s")
	}
	return flags, s.Close, nil
}

// kubeconfig writes the configuration file of a webhook and returns its path.
func kubeconfig(s *httptest.Server, dir, path string) (string, error) {
	c := api.NewConfig()
	c.Clusters["test"] = &api.Cluster{Server: s.URL + "/" + path, CertificateAuthorityData: encode(s.Certificate().Raw)}
	c.AuthInfos["test"] = &api.AuthInfo{}
	c.Contexts["test"] = &api.Context{Cluster: "test", AuthInfo: "test"}
	c.CurrentContext = "test"
	file := filepath.Join(dir, path+".kubeconfig")
	text, err := clientcmd.Write(*c)
	if err != nil {
		return "", err
	}
	return file, os.WriteFile(file, text, 0o600)
}

func (d *delegate) authenticate(w http.ResponseWriter, r *http.Request) {
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "https://127.0.0.1/", nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	request.Header.Set("Authorization", "Bearer "+review.Spec.Token)
	answer, ok, err := d.authenticator.AuthenticateRequest(request)
	review.Status = authenticationv1.TokenReviewStatus{Authenticated: ok}
	if err != nil {
		review.Status.Error = err.Error()
	}
	if ok {
		u := answer.User
		review.Status.Audiences = review.Spec.Audiences
		review.Status.User = authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
		for key, values := range u.GetExtra() {
			if review.Status.User.Extra == nil {
				review.Status.User.Extra = map[string]authenticationv1.ExtraValue{}
			}
			review.Status.User.Extra[key] = values
		}
	}
	write(w, &review)
}

func (d *delegate) authorize(w http.ResponseWriter, r *http.Request) {
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	asked := false
	decision, reason, err := d.authorizer.Authorize(context.WithValue(r.Context(), askedKey{}, &asked), attributes(&review.Spec))
	review.Status = authorizationv1.SubjectAccessReviewStatus{Reason: reason, Allowed: decision == authorizer.DecisionAllow}
	// The authorizer of the test replaces the modes of the server if it does not ask them.
	review.Status.Denied = decision == authorizer.DecisionDeny || decision == authorizer.DecisionNoOpinion && !asked
	if err != nil {
		review.Status.EvaluationError = err.Error()
	}
	write(w, &review)
}

func attributes(spec *authorizationv1.SubjectAccessReviewSpec) authorizer.Attributes {
	u := &user.DefaultInfo{Name: spec.User, UID: spec.UID, Groups: spec.Groups, Extra: map[string][]string{}}
	for key, values := range spec.Extra {
		u.Extra[key] = values
	}
	if n := spec.NonResourceAttributes; n != nil {
		return authorizer.AttributesRecord{User: u, Verb: n.Verb, Path: n.Path}
	}
	a := spec.ResourceAttributes
	if a == nil {
		a = &authorizationv1.ResourceAttributes{}
	}
	return authorizer.AttributesRecord{
		User: u, Verb: a.Verb, Namespace: a.Namespace, APIGroup: a.Group, APIVersion: a.Version,
		Resource: a.Resource, Subresource: a.Subresource, Name: a.Name, ResourceRequest: true,
	}
}

func write(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object)
}
