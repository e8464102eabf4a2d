// Command access-webhook is an example of an authorization webhook that replaces
// authz-webhook. It decides SubjectAccessReviews by a JSON file that lists the allowed
// verbs of each user and group. The verb * allows every verb:
//
//	{"users": {"ada": ["*"]}, "groups": {"dev": ["get", "list", "watch"]}}
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"log"
	"net/http"
	"os"
	"slices"
	"time"
)

const maxBody = 1 << 20

// review is a SubjectAccessReview of authorization.k8s.io v1 or v1beta1.
type review struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       spec   `json:"spec"`
	Status     status `json:"status"`
}

// spec is the part of a SubjectAccessReview that the decision depends on.
type spec struct {
	User     string      `json:"user,omitempty"`
	Groups   []string    `json:"groups,omitempty"` // in v1
	Group    []string    `json:"group,omitempty"`  // in v1beta1
	Resource *attributes `json:"resourceAttributes,omitempty"`
	Path     *attributes `json:"nonResourceAttributes,omitempty"`
}

// attributes holds the attribute of a request that rules use.
type attributes struct {
	Verb string `json:"verb"`
}

// status is the decision. If Allowed is false, other authorizers may still allow the request.
type status struct {
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason,omitempty"`
}

// rules holds the allowed verbs by user and by group.
type rules struct {
	Users  map[string][]string `json:"users"`
	Groups map[string][]string `json:"groups"`
}

// decide allows a request if a rule of the user or of one of its groups allows its verb.
func (r *rules) decide(s *spec) status {
	for _, a := range []*attributes{s.Resource, s.Path} {
		if a == nil || a.Verb == "" {
			continue
		}
		verbs := slices.Clone(r.Users[s.User])
		for _, g := range slices.Concat(s.Groups, s.Group) {
			verbs = append(verbs, r.Groups[g]...)
		}
		if slices.Contains(verbs, "*") || slices.Contains(verbs, a.Verb) {
			return status{Allowed: true, Reason: "allowed by a rule"}
		}
	}
	return status{Reason: "no rule allows it"}
}

// newHandler responds to SubjectAccessReviews by the rules.
func newHandler(rules *rules) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in review
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&in); err != nil ||
			in.Kind != "SubjectAccessReview" {
			http.Error(w, "the body is not a SubjectAccessReview", http.StatusBadRequest)
			return
		}
		// The response has the API version of the request.
		out := review{APIVersion: in.APIVersion, Kind: in.Kind, Status: rules.decide(&in.Spec)}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // fails only if the client has closed the connection
	})
}

func main() {
	address := flag.String("address", "127.0.0.1:8444", "address to listen on")
	file := flag.String("rules", "", "JSON file of rules")
	cert := flag.String("cert", "", "serving certificate, PEM")
	key := flag.String("key", "", "private key of --cert, PEM")
	clientCA := flag.String("client-ca", "", "CA bundle that verifies client certificates, PEM")
	flag.Parse()
	allowed := &rules{}
	data, err := os.ReadFile(*file)
	if err != nil {
		log.Fatalf("failed to read the file of --rules: %v", err)
	}
	if err := json.Unmarshal(data, allowed); err != nil {
		log.Fatalf("failed to parse the file %s of --rules: %v", *file, err)
	}
	ca, err := os.ReadFile(*clientCA)
	if err != nil {
		log.Fatalf("failed to read the file of --client-ca: %v", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		log.Fatalf("the file %s of --client-ca contains no certificate", *clientCA)
	}
	server := &http.Server{Addr: *address, Handler: newHandler(allowed), ReadTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}}
	log.Fatal(server.ListenAndServeTLS(*cert, *key))
}
