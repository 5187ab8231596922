from wessl.cli import main

main()
