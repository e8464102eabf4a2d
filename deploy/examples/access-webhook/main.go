// Command access-webhook is the least that can take the place of authz-webhook: a
// service that reviews access. Its rules stand in a JSON file, the verbs of each
// user and group, or a star:
//
//	{"users": {"ada": ["*"]}, "groups": {"dev": ["get", "list", "watch"]}}
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
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

type spec struct {
	User     string   `json:"user,omitempty"`
	Groups   []string `json:"groups,omitempty"` // in v1
	Group    []string `json:"group,omitempty"`  // in v1beta1
	Resource *verb    `json:"resourceAttributes,omitempty"`
	Path     *verb    `json:"nonResourceAttributes,omitempty"`
}

type verb struct {
	Verb string `json:"verb"`
}

// status without allowed is no opinion: another authorizer may still allow.
type status struct {
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason,omitempty"`
}

type rules struct {
	Users  map[string][]string `json:"users"`
	Groups map[string][]string `json:"groups"`
}

func (r *rules) decide(s *spec) status {
	for _, asked := range []*verb{s.Resource, s.Path} {
		if asked == nil || asked.Verb == "" {
			continue
		}
		verbs := slices.Clone(r.Users[s.User])
		for _, g := range slices.Concat(s.Groups, s.Group) {
			verbs = append(verbs, r.Groups[g]...)
		}
		if slices.Contains(verbs, "*") || slices.Contains(verbs, asked.Verb) {
			return status{Allowed: true, Reason: "allowed by a rule"}
		}
	}
	return status{Reason: "no rule allows it"}
}

func handler(rules *rules) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in review
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&in); err != nil || in.Kind != "SubjectAccessReview" {
			http.Error(w, "the body is no SubjectAccessReview", http.StatusBadRequest)
			return
		}
		// The answer is of the version of the question.
		out := review{APIVersion: in.APIVersion, Kind: in.Kind, Status: rules.decide(&in.Spec)}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // the client may have left
	})
}

func main() {
	address, file := flag.String("address", "127.0.0.1:8444", "address to listen on"), flag.String("rules", "", "JSON file of rules")
	cert, key := flag.String("cert", "", "serving certificate, PEM"), flag.String("key", "", "its key, PEM")
	clientCA := flag.String("client-ca", "", "CA of the clients that may ask, PEM")
	flag.Parse()
	allowed := &rules{}
	data, err := os.ReadFile(*file)
	ca, caErr := os.ReadFile(*clientCA)
	pool := x509.NewCertPool()
	if err = errors.Join(err, json.Unmarshal(data, allowed), caErr); err != nil || !pool.AppendCertsFromPEM(ca) {
		log.Fatalf("--rules or --client-ca cannot be read: %v", err)
	}
	server := &http.Server{Addr: *address, Handler: handler(allowed), ReadTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}}
	log.Fatal(server.ListenAndServeTLS(*cert, *key))
}
