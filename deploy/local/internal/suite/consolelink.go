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

// viewer is the user of the console's link.
const viewer = "binnacle-viewer"

// writeConsoleLink creates a token for users of the console, once, and the link that contains it.
// Both files are accessible to this user only.
func writeConsoleLink(p paths, url string) error {
	line, err := os.ReadFile(p.tokens())
	if errors.Is(err, fs.ErrNotExist) {
		// The permissions of monitoring: reading metrics and health.
		line = []byte(rand.Text() + "," + viewer + "," + viewer + ",\"system:monitoring\"\n")
		err = tlsfiles.WriteFile(p.tokens(), line, 0o600)
	}
	if err != nil {
		return err
	}
	token, remaining, _ := strings.Cut(string(line), ",")
	if !strings.HasPrefix(remaining, viewer+",") {
		return fmt.Errorf("%s does not begin with the token of %s", p.tokens(), viewer)
	}
	// Browsers do not send the part after #.
	return writeFile(p.consoleLink(), []byte(url+"/#token="+token+"\n"))
}
