package build

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/config"
)

const (
	requestsPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	clientSigner = "kubernetes.io/kube-apiserver-client"
)

// requestFor returns a CertificateSigningRequest for a subject.
func requestFor(t *testing.T, name, signer string, subject pkix.Name) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		t.Fatal(err)
	}
	text := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	return fmt.Sprintf(`{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{"name":%q},"spec":{"signerName":%q,"request":%q,"usages":["client auth"]}}`,
		name, signer, text)
}

// grant binds a user to a new cluster role.
func (api *testServer) grant(user, rules string) {
	api.t.Helper()
	api.mustSend(201, "POST", rbacPath+"/clusterroles", role(user, rules))
	api.mustSend(201, "POST", rbacPath+"/clusterrolebindings", strings.Replace(bindingOf(user, "ClusterRole", user, user),
		`"RoleBinding"`, `"ClusterRoleBinding"`, 1))
}

const (
	allOfRequests = `{"apiGroups":["certificates.k8s.io"],"resources":["certificatesigningrequests","certificatesigningrequests/approval","certificatesigningrequests/status"],"verbs":["*"]}`
	approved      = `{"status":{"conditions":[{"type":"Approved","status":"True","reason":"r","message":"m"}]}}`
	denied        = `{"status":{"conditions":[{"type":"Denied","status":"True","reason":"r","message":"m"}]}}`
)

// TestCertificateRequestsNeedSignerPermission checks that users who may write
// CertificateSigningRequests need permissions on the signers, too, and get no certificate of an
// administrator.
func TestCertificateRequestsNeedSignerPermission(t *testing.T) {
	t.Parallel()
	api := startServer(t, withRBAC)
	api.grant("bob", `{"apiGroups":["certificates.k8s.io"],"resources":["*"],"verbs":["*"]}`)
	api.grant("cadmin", allOfRequests)
	api.grant("alice",
		allOfRequests+
			`,{"apiGroups":["certificates.k8s.io"],"resources":["signers"],"verbs":["approve","sign"],"resourceNames":["ex.test/*","`+
			clientSigner+`"]}`)
	api.waitUntil("granted", func() bool {
		return api.get(requestsPath, asUser("alice")...).code == 200 &&
			api.get(requestsPath, asUser("cadmin")...).code == 200 &&
			api.get(requestsPath, asUser("bob")...).code == 200
	})
	ca, _ := clientPair(t)
	issued := fmt.Sprintf(`{"status":{"certificate":%q}}`, base64.StdEncoding.EncodeToString(ca))
	masters := pkix.Name{CommonName: "m", Organization: []string{"dev", "system:masters"}}
	patch := func(user string) []string { return append(asUser(user), "Content-Type", mergePatch) }
	for _, test := range []struct {
		user, method, path, body string
		code                     int
		want                     string
	}{
		{
			user:   "bob",
			method: "POST",
			body:   requestFor(t, "m", clientSigner, masters),
			code:   403,
			want:   `certificatesigningrequests.certificates.k8s.io "m" is forbidden: use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed`,
		},
		{user: "bob", method: "POST", body: requestFor(t, "ok", clientSigner, pkix.Name{CommonName: "m"}), code: 201},
		{user: "bob", method: "POST", body: requestFor(t, "m2", "ex.test/s", masters), code: 201},
		{
			user:   "cadmin",
			method: "PATCH",
			path:   "/ok/approval",
			body:   approved,
			code:   403,
			want:   `certificatesigningrequests.certificates.k8s.io "ok" is forbidden: user not permitted to approve requests with signerName "kubernetes.io/kube-apiserver-client"`,
		},
		{user: "alice", method: "PATCH", path: "/ok/approval", body: approved, code: 200},
		{user: "alice", method: "PATCH", path: "/m2/approval", body: denied, code: 200},
		{
			user:   "cadmin",
			method: "PATCH",
			path:   "/ok/status",
			body:   issued,
			code:   403,
			want:   `certificatesigningrequests.certificates.k8s.io "ok" is forbidden: user not permitted to sign requests with signerName "kubernetes.io/kube-apiserver-client"`,
		},
		{
			user:   "cadmin",
			method: "PATCH",
			path:   "/ok/status",
			body:   `{"status":{"conditions":[{"type":"Approved","status":"True"},{"type":"Odd","status":"True"}]}}`,
			code:   403,
			want:   `certificatesigningrequests.certificates.k8s.io "ok" is forbidden: user not permitted to sign requests with signerName "kubernetes.io/kube-apiserver-client"`,
		},
		{user: "alice", method: "PATCH", path: "/ok/status", body: issued, code: 200},
	} {
		response := api.send(test.method, requestsPath+test.path, test.body, patchFor(test.method, patch(test.user))...)
		if response.code != test.code || test.want != "" && response.field("message") != test.want {
			t.Errorf("%s %s %s: got %d, want %d %s:\n%s", test.user, test.method, test.path, response.code, test.code, test.want, response.body)
		}
	}
}

// patchFor drops the media type of patches for other methods.
func patchFor(method string, header []string) []string {
	if method == "PATCH" {
		return header
	}
	return header[:len(header)-2]
}

// TestSuiteIdentitiesCannotBeRequested checks that even administrators cannot request them,
// whatever plugins are disabled.
func TestSuiteIdentitiesCannotBeRequested(t *testing.T) {
	t.Parallel()
	api := startServer(t, func(options *config.Options) {
		withRBAC(options)
		options.Admission.Disable = []string{"CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction"}
	})
	for name, test := range map[string]struct {
		signer  string
		subject pkix.Name
		code    int
	}{
		"name": {signer: clientSigner, subject: pkix.Name{CommonName: "system:binnacle:tokencleaner"}, code: 403},
		"group": {
			signer:  clientSigner,
			subject: pkix.Name{CommonName: "x", Organization: []string{"a", "system:binnacle"}},
			code:    403,
		},
		"another": {signer: "ex.test/s", subject: pkix.Name{CommonName: "system:binnacle:apiserver"}, code: 403},
		"masters": {signer: clientSigner, subject: pkix.Name{CommonName: "x", Organization: []string{"system:masters"}}, code: 201},
	} {
		response := api.mustSend(test.code, "POST", requestsPath, requestFor(t, name, test.signer, test.subject))
		if want := fmt.Sprintf("certificatesigningrequests.certificates.k8s.io %q is forbidden: user names that begin with system:binnacle: and the group system:binnacle are reserved for the suite's own services",
			name); test.code == 403 && response.field("message") != want {
			t.Errorf("%s: got message %v, want %s", name, response.field("message"), want)
		}
	}
}

// issued returns the base64 PEM text of a certificate with a lifetime.
func issued(t *testing.T, lifetime time.Duration) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: start, NotAfter: start.Add(lifetime)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// TestIssuedDurationsAreCounted checks that the metric of issued certificates compares their
// durations with the requested ones.
func TestIssuedDurationsAreCounted(t *testing.T) {
	api := startServer(t, nil)
	for name, lifetime := range map[string]time.Duration{
		"as-requested": 65 * time.Minute, "longer": 2 * time.Hour, "unspecified": time.Hour,
	} {
		request := requestFor(t, name, clientSigner, pkix.Name{CommonName: "c"})
		if name != "unspecified" {
			request = strings.Replace(request, `"spec":{`, `"spec":{"expirationSeconds":3600,`, 1)
		}
		api.mustSend(201, "POST", requestsPath, request)
		api.mustSend(200, "PATCH", requestsPath+"/"+name+"/approval", approved, "Content-Type", "application/merge-patch+json")
		api.mustSend(200, "PATCH", requestsPath+"/"+name+"/status?dryRun=All",
			`{"status":{"certificate":"`+issued(t, lifetime)+`"}}`, "Content-Type",
			"application/merge-patch+json")
		api.mustSend(200, "PATCH", requestsPath+"/"+name+"/status",
			`{"status":{"certificate":"`+issued(t, lifetime)+`"}}`, "Content-Type",
			"application/merge-patch+json")
	}
	for _, want := range []string{
		`apiserver_certificates_registry_csr_requested_duration_total{signerName="kubernetes.io/kube-apiserver-client"} 2`,
		`apiserver_certificates_registry_csr_honored_duration_total{signerName="kubernetes.io/kube-apiserver-client"} 1`,
	} {
		if text := api.get("/metrics").body; !strings.Contains(string(text), want+"\n") {
			t.Errorf("got no line %s", want)
		}
	}
}
