package authn

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/request"
)

// tokenProtocol is the prefix of the subprotocol that carries a token. Browser scripts cannot set
// any other header of a WebSocket.
const tokenProtocol = "base64url.bearer.authorization." + api.Domain + "."

// WebSocket passes the token in a WebSocket's subprotocols to a reviewer.
type WebSocket struct{ Tokens Tokens }

// Authenticate implements Authenticator.
func (s WebSocket) Authenticate(r *http.Request) (*request.User, error) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return nil, nil
	}
	token, others := "", []string(nil)
	for _, line := range r.Header.Values("Sec-Websocket-Protocol") {
		for _, protocol := range strings.Split(line, ",") {
			protocol = strings.TrimSpace(protocol)
			encoded, ok := strings.CutPrefix(protocol, tokenProtocol)
			if !ok {
				others = append(others, protocol)
				continue
			}
			if token != "" {
				return nil, fmt.Errorf("%w: more than one subprotocol carries a token", ErrInvalid)
			}
			raw, err := base64.RawURLEncoding.DecodeString(encoded)
			if err != nil || len(raw) == 0 || !utf8.Valid(raw) {
				return nil, fmt.Errorf("%w: the token of the subprotocol cannot be read", ErrInvalid)
			}
			token = string(raw)
		}
	}
	if token == "" {
		return nil, nil
	}
	// The server must respond with one of the offered protocols, which must not be the token.
	if len(others) == 0 {
		return nil, fmt.Errorf("%w: missing additional subprotocol", ErrInvalid)
	}
	user, err := reviewToken(r.Context(), s.Tokens, token)
	if user != nil {
		r.Header.Set("Sec-Websocket-Protocol", strings.Join(others, ","))
	}
	return user, err
}

// removeProtocolTokens removes tokens from the subprotocols.
func removeProtocolTokens(header http.Header) {
	const name = "Sec-Websocket-Protocol"
	lines := header.Values(name)
	if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, tokenProtocol) }) {
		return
	}
	var others []string
	for _, line := range lines {
		for _, protocol := range strings.Split(line, ",") {
			protocol = strings.TrimSpace(protocol)
			if !strings.HasPrefix(protocol, tokenProtocol) {
				others = append(others, protocol)
			}
		}
	}
	header.Del(name)
	if len(others) > 0 {
		header.Set(name, strings.Join(others, ","))
	}
}
