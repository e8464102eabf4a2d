package reviews

import (
	"encoding/json"
	"os"
)

// Exchange is one request of a client and what came of it.
type Exchange struct {
	Name           string            `json:"name"`
	Client         *ClientRequest    `json:"client"`
	Files          map[string]string `json:"files"`
	Configurations []map[string]any  `json:"configurations"`
	Webhooks       []Call            `json:"webhooks"`
	Answer         Answer            `json:"answer"`
	// Setup is asked before; After is what is read then.
	Setup []ClientRequest `json:"setup"`
	After []Exchange      `json:"after"`
	// Calls are those of a service that is no webhook of the API.
	Calls []Call `json:"calls"`
}

// ClientRequest is what the client sends.
type ClientRequest struct {
	Method  string            `json:"method"`
	Path    string            `json:"path"`
	Headers map[string]string `json:"headers"`
	User    any               `json:"user"`
	Body    any               `json:"body"`
}

// Call is what a webhook is asked, and answers.
type Call struct {
	Path    string            `json:"path"`
	Proto   string            `json:"proto"`
	Host    string            `json:"host"`
	Headers map[string]string `json:"headers"`
	Body    any               `json:"body"`
	Answer  CallAnswer        `json:"answer"`
}

// CallAnswer is what a webhook answers.
type CallAnswer struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    any               `json:"body"`
	SleepMs int               `json:"sleepMs"`
	Closes  bool              `json:"closesConnection"`
}

// Answer is what the client gets. Status may be a text.
type Answer struct {
	Status  any            `json:"status"`
	Headers map[string]any `json:"headers"`
	Body    any            `json:"body"`
}

// Load reads a file of exchanges.
func Load(file string) (out []*Exchange, err error) {
	return out, load(file, &out)
}

func load(file string, into any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}
