package suite

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"binnacle/libs/serving/tlsfiles"
)

// viewer is who looks at the console by its link.
const viewer = "binnacle-viewer"

// writeConsoleLink makes a token for those who look at the console, once, and the link
// that has it. Both files are for this user alone.
func writeConsoleLink(p paths, url string) error {
	line, err := os.ReadFile(p.tokens())
	if errors.Is(err, fs.ErrNotExist) {
		// What monitoring may: read metrics and health.
		line = []byte(rand.Text() + "," + viewer + "," + viewer + ",\"system:monitoring\"\n")
		err = tlsfiles.WriteFile(p.tokens(), line, 0o600)
	}
	if err != nil {
		return err
	}
	token, rest, _ := strings.Cut(string(line), ",")
	if !strings.HasPrefix(rest, viewer+",") {
		return fmt.Errorf("%s does not begin with the token of %s", p.tokens(), viewer)
	}
	// What is behind # goes to no server.
	return tlsfiles.WriteFile(p.consoleLink(), []byte(url+"/#token="+token+"\n"), 0o600)
}
