package handlers

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// continueToken is the content of metadata.continue, in the format of Kubernetes: the start key of
// the next page, relative to the resource's prefix, and the version of the list.
type continueToken struct {
	APIVersion      string `json:"v"`
	ResourceVersion int64  `json:"rv"`
	StartKey        string `json:"start"`
}

const (
	continueVersion = "meta.k8s.io/v1"
	// inconsistent marks a token whose version is no longer available: the rest of the list is read
	// from the current state.
	inconsistent = -1
)

// encodeContinue returns the token after a page with the given last key.
func encodeContinue(lastKey, prefix string, revision int64) string {
	start := strings.TrimPrefix(lastKey, prefix)
	// The NUL gives the next possible key, because keys contain no NUL.
	b, _ := json.Marshal(continueToken{APIVersion: continueVersion, ResourceVersion: revision, StartKey: start + "\u0000"})
	return base64.RawURLEncoding.EncodeToString(b)
}

// decodeContinue decodes a token into the start key and the version.
func decodeContinue(token, prefix string) (from string, revision int64, err error) {
	bad := func(msg string) (string, int64, error) {
		return "", 0, apierrors.NewBadRequest("continue key is not valid: " + msg)
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return bad(err.Error())
	}
	var t continueToken
	if err := json.Unmarshal(b, &t); err != nil {
		return bad(err.Error())
	}
	switch {
	case t.APIVersion != continueVersion:
		return bad("server does not recognize this encoded version " + t.APIVersion)
	case t.ResourceVersion == 0:
		return bad("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
	case t.StartKey == "":
		return bad("encoded start key empty (version meta.k8s.io/v1)")
	}
	// A key cannot leave the prefix.
	for _, part := range strings.Split(t.StartKey, "/") {
		if part == ".." || part == "." {
			return bad(t.StartKey)
		}
	}
	return prefix + strings.TrimPrefix(t.StartKey, "/"), t.ResourceVersion, nil
}
