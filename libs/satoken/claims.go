package satoken

import (
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"k8s.io/apimachinery/pkg/util/validation"

	"binnacle/libs/api"
)

// Names of users and groups that service accounts have.
const (
	userPrefix  = "system:serviceaccount:"
	groupAll    = "system:serviceaccounts"
	groupPrefix = groupAll + ":"
)

// Extra keys of the users that bound tokens speak for.
const (
	extraPrefix = "authentication." + api.LabelDomain + "/"

	ExtraPodName  = extraPrefix + "pod-name"
	ExtraPodUID   = extraPrefix + "pod-uid"
	ExtraNodeName = extraPrefix + "node-name"
	ExtraNodeUID  = extraPrefix + "node-uid"
)

// LegacyIssuer is the issuer of tokens that live in secrets.
const LegacyIssuer = "kubernetes/serviceaccount"

// Username of a service account.
func Username(namespace, name string) string { return userPrefix + namespace + ":" + name }

// Groups of a namespace's service accounts.
func Groups(namespace string) []string { return []string{groupAll, groupPrefix + namespace} }

// SplitUsername is the reverse of Username; false for names of other users, such as those that no
// service account can have.
func SplitUsername(user string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(user, userPrefix)
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "", "", false
	}
	return namespace, name, true
}

// Ref names an object as it was when the token was made.
type Ref struct {
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

// Binding says whom a token speaks for, and what it is bound to.
type Binding struct {
	Namespace      string `json:"namespace,omitempty"`
	ServiceAccount Ref    `json:"serviceaccount,omitempty"`
	Pod            *Ref   `json:"pod,omitempty"`
	Secret         *Ref   `json:"secret,omitempty"`
	Node           *Ref   `json:"node,omitempty"`
	// WarnAfter is when the token's user should have fetched another one.
	WarnAfter *jwt.NumericDate `json:"warnafter,omitempty"`
}

// Claims of a token.
type Claims struct {
	jwt.RegisteredClaims
	Binding *Binding `json:"kubernetes.io,omitempty"`

	LegacyNamespace  string `json:"kubernetes.io/serviceaccount/namespace,omitempty"`
	LegacySecretName string `json:"kubernetes.io/serviceaccount/secret.name,omitempty"`
	LegacyName       string `json:"kubernetes.io/serviceaccount/service-account.name,omitempty"`
	LegacyUID        string `json:"kubernetes.io/serviceaccount/service-account.uid,omitempty"`
}

func date(t time.Time) *jwt.NumericDate { return jwt.NewNumericDate(t) }
