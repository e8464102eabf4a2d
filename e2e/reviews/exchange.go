package reviews

import (
	"encoding/json"
	"os"
)

// Exchange is one request of a client and its effects.
type Exchange struct {
	Name           string            `json:"name"`
	Client         *ClientRequest    `json:"client"`
	Files          map[string]string `json:"files"`
	Configurations []map[string]any  `json:"configurations"`
	Webhooks       []Call            `json:"webhooks"`
	Response       Response          `json:"answer"`
	// Setup is sent before the request, and After is read after it.
	Setup []ClientRequest `json:"setup"`
	After []Exchange      `json:"after"`
	// Calls are requests to a service that is not an API webhook.
	Calls []Call `json:"calls"`
}

// ClientRequest is a request of the client. User is "token:" and a bearer token, or nil for the
// client certificate of the administrator.
type ClientRequest struct {
	Method  string            `json:"method"`
	Path    string            `json:"path"`
	Headers map[string]string `json:"headers"`
	User    any               `json:"user"`
	Body    any               `json:"body"`
}

// Call is a request to a webhook and its response.
type Call struct {
	Path     string            `json:"path"`
	Proto    string            `json:"proto"`
	Host     string            `json:"host"`
	Headers  map[string]string `json:"headers"`
	Body     any               `json:"body"`
	Response CallResponse      `json:"answer"`
}

// CallResponse is a response of a webhook.
type CallResponse struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    any               `json:"body"`
	SleepMs int               `json:"sleepMs"`
	Closes  bool              `json:"closesConnection"`
}

// Response is the response to the client. Status may be a text.
type Response struct {
	Status  any            `json:"status"`
	Headers map[string]any `json:"headers"`
	Body    any            `json:"body"`
}

// Load reads a file of exchanges.
func Load(file string) (out []*Exchange, err error) {
	return out, loadJSON(file, &out)
}

// loadJSON decodes a JSON file.
func loadJSON(file string, into any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}
