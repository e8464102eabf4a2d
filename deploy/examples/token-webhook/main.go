// Command token-webhook is a minimal replacement for authn-webhook: a service that reviews bearer
// tokens. A JSON file maps the SHA-256 of each token, in hexadecimal, to its user:
//
//	{"<digest>": {"username": "ada", "groups": ["dev"]}}
//
// docs/user/swapping.md describes how the API server uses it.
package main

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"net/http"
	"os"
	"time"
)

// maxBody is the maximum size in bytes of a request body.
const maxBody = 1 << 20

// review is a TokenReview of authentication.k8s.io v1 or v1beta1.
type review struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Token string `json:"token,omitempty"`
	} `json:"spec"`
	Status status `json:"status"`
}

// status is the status of a TokenReview.
type status struct {
	Authenticated bool  `json:"authenticated"`
	User          *user `json:"user,omitempty"`
}

// user is an authenticated user, both in the file of users and in a TokenReview.
type user struct {
	Username string              `json:"username"`
	UID      string              `json:"uid,omitempty"`
	Groups   []string            `json:"groups,omitempty"`
	Extra    map[string][]string `json:"extra,omitempty"`
}

// newHandler returns the handler of TokenReview requests. users holds the users by the SHA-256 of
// their tokens in hexadecimal. Because the handler looks up the digest and not the token, response
// times do not reveal how many characters of a guessed token are correct.
func newHandler(users map[string]user) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in review
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&in); err != nil || in.Kind != "TokenReview" {
			http.Error(w, "the body is not a TokenReview", http.StatusBadRequest)
			return
		}
		// The response has the API version of the request, and does not repeat the token.
		out := review{APIVersion: in.APIVersion, Kind: in.Kind}
		digest := sha256.Sum256([]byte(in.Spec.Token))
		if u, ok := users[hex.EncodeToString(digest[:])]; ok {
			out.Status = status{Authenticated: true, User: &u}
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(out); err != nil {
			log.Printf("failed to write the response: %v", err)
		}
	})
}

func main() {
	address := flag.String("address", "127.0.0.1:8443", "address to listen on")
	cert := flag.String("cert", "", "serving certificate, PEM")
	key := flag.String("key", "", "its key, PEM")
	clientCA := flag.String("client-ca", "", "CA of the clients that may ask, PEM")
	file := flag.String("users", "", "JSON file of users")
	flag.Parse()
	var users map[string]user
	data, err := os.ReadFile(*file)
	if err = errors.Join(err, json.Unmarshal(data, &users)); err != nil {
		log.Fatal(err)
	}
	ca, err := os.ReadFile(*clientCA)
	pool := x509.NewCertPool()
	if err != nil || !pool.AppendCertsFromPEM(ca) {
		log.Fatalf("--client-ca %q cannot be read: %v", *clientCA, err)
	}
	server := &http.Server{
		Addr:        *address,
		Handler:     newHandler(users),
		ReadTimeout: 10 * time.Second,
		TLSConfig:   &tls.Config{ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert},
	}
	log.Fatal(server.ListenAndServeTLS(*cert, *key))
}
