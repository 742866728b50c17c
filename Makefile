# The doors of this project. Each is a line or two; what is longer is a script in tests/tools.
.PHONY: help demo test bench check lib install uninstall

help: ## show this
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

demo: ## build the library and see it at work (needs Rust, a C compiler and make)
	@tests/tools/demo

test: ## all tests (needs python3 besides; brings Node.js and Go into target/)
	@tests/tools/test

bench: ## measure, each thing beside what it is to be compared with (slow)
	@cargo bench --locked -p mcp-pool --bench pool -- --noplot
	@cargo run --release --manifest-path mcp-transport/bench/Cargo.toml
	@tests/tools/bench-c

check: ## the rest of what CI runs: style, header, symbols, least Rust, memory, fuzzing
	@tests/tools/check

lib: ## the C library, shared and static, in target/release
	@tests/tools/lib release

install: ## install header, libraries and mcpconn.pc (after make lib) below PREFIX (/usr/local) and DESTDIR
	@PREFIX="$(PREFIX)" LIBDIR="$(LIBDIR)" DESTDIR="$(DESTDIR)" tests/tools/install

uninstall: ## remove what install brought
	@PREFIX="$(PREFIX)" LIBDIR="$(LIBDIR)" DESTDIR="$(DESTDIR)" tests/tools/install --remove
