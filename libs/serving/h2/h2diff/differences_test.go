package h2diff_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// difference is an accepted difference between the servers in a step of an exchange.
type difference struct {
	// scripts, ours and standard are regular expressions for the name of the exchange and for the
	// lines that only one server has. Each must match the whole text. Random exchanges have the
	// name "random".
	scripts, ours, standard string
	reason                  string
	// endsComparison means that the rest of the exchange is not compared, because one server has ended a
	// stream or the connection.
	endsComparison bool
}

// Parts of lines.
const (
	responded = `1 HEADERS :status=(200|400) .*`
	malformed = `1 RST_STREAM PROTOCOL_ERROR`
	seen      = `((; )?handler: .*)?` // how handlers see the end of their stream
)

var accepted = []difference{
	// Malformed requests.
	{
		scripts:  `request/(te of .*|connection|keep-alive|proxy-connection|transfer-encoding|upgrade), end .*`,
		ours:     malformed,
		standard: responded,
		reason:   "a malformed request ends its stream; net/http responds with 400", endsComparison: true,
	},
	{scripts: `request/(length .*|two lengths), end .*`, ours: malformed, standard: responded,
		reason:         "a Content-Length that is not a number, comes twice, or has no body is malformed; net/http serves such requests",
		endsComparison: true,
	},
	{scripts: `body/(bad length|two lengths) for .*`, ours: malformed, standard: `(1 HEADERS .*|handler: request .*)`,
		reason: "the same", endsComparison: true},
	{
		scripts:  `request/(two hosts|host unlike the authority|authority with a space), end .*`,
		ours:     malformed,
		standard: responded,
		reason:   "an ambiguous or invalid authority is malformed; net/http serves such requests", endsComparison: true,
	},
	{scripts: `request/(path of a URL|method with a space), end .*`, ours: malformed, standard: responded,
		reason: "a path begins with a slash, and a method is a token; net/http serves such requests", endsComparison: true},
	{
		scripts:  `request/(host as the authority|no authority, host), end .*`,
		ours:     `handler: .*trailer=0 `,
		standard: `handler: .*trailer=0 Host=.*`,
		reason:   "a request's Host is not in its header, as net/http documents",
	},
	{scripts: `request/declared trailers, wrong, end .*`, ours: `handler: .*trailer=0 .*`, standard: `handler: .*trailer=1 .*`,
		reason: "an empty name is not a trailer"},
	{
		scripts:  `(request/large, beyond the limit, .*|block/HPACK, many fields of a byte)`,
		ours:     `1 HEADERS :status=431 .*`,
		standard: `1 HEADERS :status=431 .*`,
		reason:   "the text of 431 is plain",
	},
	{
		scripts:  `state/.*/HEADERS with a connection field`,
		ours:     `3 RST_STREAM PROTOCOL_ERROR` + seen,
		standard: `(3 HEADERS :status=200 .*)?`,
		reason:   "trailers with a connection field are malformed; net/http ignores the field", endsComparison: true,
	},
	{
		scripts:  `body/trailers that are forbidden for .*`,
		ours:     `(1 (HEADERS :status=200|END_STREAM).*)?`,
		standard: `1 RST_STREAM PROTOCOL_ERROR` + seen,
		reason:   "a trailer that is forbidden is dropped; net/http resets the stream", endsComparison: true,
	},
	{scripts: `body/(too short|trailers after a short body) for .*`, ours: malformed, standard: `1 (HEADERS|DATA|END_STREAM).*`,
		reason: "a body that is shorter than declared resets the stream; net/http tells the handler only", endsComparison: true},
	{
		scripts:  `state/open, counted/(DATA empty END_STREAM|HEADERS trailers)`,
		ours:     `3 RST_STREAM PROTOCOL_ERROR`,
		standard: `3 HEADERS :status=200 .*`,
		reason:   "the same", endsComparison: true,
	},
	{scripts: `random`, ours: `\d+ RST_STREAM PROTOCOL_ERROR` + seen, standard: `(\d+ (HEADERS|DATA|END_STREAM).*)?`,
		reason: "the same for short bodies and malformed trailers in random order", endsComparison: true},

	// Frames.
	{scripts: `.*`, ours: `\d+ RST_STREAM FRAME_SIZE_ERROR` + seen, standard: `(0 GOAWAY last=\d+ FRAME_SIZE_ERROR` + seen + `)?`,
		reason:         "a PRIORITY frame of a wrong size is an error of its stream (RFC 9113, 6.3); net/http ends the connection",
		endsComparison: true,
	},
	{scripts: `.*`, ours: `0 GOAWAY last=\d+ PROTOCOL_ERROR` + seen, standard: `\d+ RST_STREAM PROTOCOL_ERROR` + seen,
		reason:         "too much padding of HEADERS, and WINDOW_UPDATE of an idle stream, are errors of the connection (RFC 9113, 6.2 and 5.1); net/http resets the stream",
		endsComparison: true,
	},
	{scripts: `.*`, ours: `0 GOAWAY last=\d+ FRAME_SIZE_ERROR` + seen, standard: seen,
		reason:         "a frame without room for its fields is an error that the client can read about; net/http closes the connection without GOAWAY",
		endsComparison: true,
	},
	{
		scripts:  `.*`,
		ours:     `0 GOAWAY last=\d+ (PROTOCOL|COMPRESSION|FRAME_SIZE)_ERROR` + seen,
		standard: `0 GOAWAY last=\d+ (PROTOCOL|COMPRESSION|FRAME_SIZE)_ERROR` + seen,
		reason:   "the last stream of GOAWAY is the newest that was opened; net/http names that of the bad frame", endsComparison: true,
	},
	{scripts: `.*`, ours: `0 GOAWAY last=\d+ STREAM_CLOSED` + seen, standard: `0 GOAWAY last=\d+ PROTOCOL_ERROR` + seen,
		reason: "HEADERS on a closed stream are STREAM_CLOSED (RFC 9113, 5.1)", endsComparison: true},
	{
		scripts:  `.*after the (server|client)'s GOAWAY/.*`,
		ours:     `0 GOAWAY last=\d+ (PROTOCOL|FRAME_SIZE)_ERROR` + seen,
		standard: ``,
		reason:   "errors are reported after a graceful GOAWAY, too; net/http ends without a word", endsComparison: true,
	},
	{scripts: `.*after the (server|client)'s GOAWAY/.*`, ours: `3 RST_STREAM PROTOCOL_ERROR` + seen, standard: ``,
		reason: "the same for the errors of a stream", endsComparison: true},
	{scripts: `connection/preface .*`, ours: `0 GOAWAY last=0 PROTOCOL_ERROR`, standard: ``,
		reason: "a bad preface gets GOAWAY; net/http closes the connection", endsComparison: true},
	{scripts: `connection/the same setting twice`, ours: `0 SETTINGS ack`, standard: `0 GOAWAY last=0 PROTOCOL_ERROR`,
		reason: "settings may be repeated in a frame (RFC 9113, 6.5.3)", endsComparison: true},
	{
		scripts:  `connection/\d+ streams at once`,
		ours:     `(\d+ RST_STREAM REFUSED_STREAM(; )?)+`,
		standard: `(\d+ RST_STREAM PROTOCOL_ERROR(; )?)+`,
		reason:   "streams beyond the limit are refused, so that the client may send them again",
	},

	// Streams that the server has reset.
	{scripts: `.*`, ours: ``, standard: `(\d+ RST_STREAM STREAM_CLOSED(; )?)+`,
		reason: "frames that were sent before the client knew of the reset are ignored (RFC 9113, 5.1); net/http resets the stream again"},
	{scripts: `.*`, ours: ``, standard: `0 GOAWAY last=\d+ PROTOCOL_ERROR` + seen,
		reason: "the same for trailers; net/http ends the connection", endsComparison: true},
	{scripts: `body/trailers with upper-case for .*`, ours: ``, standard: malformed,
		reason: "the same for malformed trailers"},

	// Responses.
	{
		scripts:  `response/(GET|POST) /declared\?length=(10&n=4|20000&n=0)`,
		ours:     `1 RST_STREAM INTERNAL_ERROR`,
		standard: `1 END_STREAM.*`,
		reason:   "a response that is shorter than declared is reset; net/http ends it as if it were whole",
	},
	{scripts: `response/.* /declared\?length=(10&n=11|0&n=1)`, ours: `.*error true`, standard: `.*error false`,
		reason: "a response that is longer than declared is an error"},
	{
		scripts:  `response/.* /fields`,
		ours:     `1 HEADERS :status=200 .*`,
		standard: `1 HEADERS :status=200 .* keep-alive=1 proxy-connection=x upgrade=x .*`,
		reason:   "fields of the connection are not sent (RFC 9113, 8.2.2)",
	},

	{
		scripts:  `response/HEAD /(declared\?length=20000&n=20000|large.*|parts.*|trailers.*)`,
		ours:     `(handler: .* error false)?`,
		standard: `handler: (wrote .*, error true|part \d failed)`,
		reason:   "a handler may write the body of a response to HEAD; net/http fails such writes after the header",
	},

	{scripts: `random`, ours: `(handler: (wrote|copied) .*)?`, standard: `(handler: (wrote|copied) .*)?`,
		reason: "each server buffers another number of bytes before the handler waits for the client"},

	// Timeouts.
	{scripts: `connection/idle until the timeout`, ours: `0 PING ack=true 99`, standard: ``,
		reason: "after the GOAWAY of an idle connection frames are acknowledged until the connection closes"},
}

// differences counts how often each accepted difference occurs.
type differences struct {
	list []compiledDifference
}

type compiledDifference struct {
	*difference
	scripts, ours, standard *regexp.Regexp
	used                    bool
}

func newDifferences() *differences {
	compiled := &differences{}
	for i := range accepted {
		difference := &accepted[i]
		whole := func(s string) *regexp.Regexp { return regexp.MustCompile("^(?s:" + s + ")$") }
		compiled.list = append(compiled.list, compiledDifference{difference, whole(difference.scripts), whole(difference.ours), whole(difference.standard), false})
	}
	return compiled
}

// compare describes the first difference that is not accepted, or returns "".
func (d *differences) compare(name string, ours, standard []step) string {
	for i := range max(len(ours), len(standard)) {
		var ourStep, standardStep step
		if i < len(ours) {
			ourStep = ours[i]
		}
		if i < len(standard) {
			standardStep = standard[i]
		}
		if text := violation(ourStep) + violation(standardStep); text != "" {
			return fmt.Sprintf("  step %d: %s\n  ours:\n%s  standard:\n%s", i, text,
				formatSteps(ours[:min(i+1, len(ours))]), formatSteps(standard[:min(i+1, len(standard))]))
		}
		onlyOurs, onlyStandard := linesOnlyIn(ourStep, standardStep), linesOnlyIn(standardStep, ourStep)
		if len(onlyOurs) == 0 && len(onlyStandard) == 0 && !slices.Equal(ourStep, standardStep) {
			onlyOurs, onlyStandard = ourStep, standardStep // in another order
		}
		if len(onlyOurs) == 0 && len(onlyStandard) == 0 {
			continue
		}
		difference := d.find(name, onlyOurs, onlyStandard)
		if difference == nil {
			return fmt.Sprintf("  step %d\n  only ours:     %q\n  only standard: %q\n  ours:\n%s  standard:\n%s", i,
				strings.Join(onlyOurs, "; "), strings.Join(onlyStandard, "; "),
				formatSteps(ours[:min(i+1, len(ours))]), formatSteps(standard[:min(i+1, len(standard))]))
		}
		difference.used = true
		if difference.endsComparison {
			return ""
		}
	}
	return ""
}

// violation returns a protocol violation in a step, or "".
func violation(s step) string {
	for _, line := range s {
		if strings.Contains(line, "violation: ") {
			return line
		}
	}
	return ""
}

func (d *differences) find(name string, ours, standard []string) *compiledDifference {
	ourLines, standardLines := strings.Join(ours, "; "), strings.Join(standard, "; ")
	for i := range d.list {
		candidate := &d.list[i]
		if candidate.scripts.MatchString(name) && candidate.ours.MatchString(ourLines) && candidate.standard.MatchString(standardLines) {
			return candidate
		}
	}
	return nil
}

// linesOnlyIn returns the lines of a that b lacks.
func linesOnlyIn(a, b step) (lines []string) {
	unmatched := slices.Clone(b)
	for _, line := range a {
		if i := slices.Index(unmatched, line); i >= 0 {
			unmatched = slices.Delete(unmatched, i, i+1)
		} else {
			lines = append(lines, line)
		}
	}
	return lines
}

func (d *differences) unused() (texts []string) {
	for _, c := range d.list {
		if !c.used && c.difference.scripts != "random" {
			texts = append(texts, fmt.Sprintf("%s: %q against %q", c.difference.scripts, c.difference.ours,
				c.difference.standard))
		}
	}
	return texts
}
